//! The times for which charges had waited.

use submeter_percpu::Pressure;

use super::GroupValues;
use crate::metric::schema::{Metric, MetricKind, Quota};
use crate::metric::unit::Unit;

impl GroupValues {
    /// Returns for how long charges waited for room of a quota, up to the snapshot. Panics when it
    /// is of another schema.
    #[must_use]
    pub fn pressure<U: Unit>(&self, quota: Quota<U>) -> Pressure {
        self.pressure_at(self.slot(quota.key))
    }

    /// Returns [`pressure`](GroupValues::pressure) of any metric of this snapshot's schema; `None`
    /// for one that is no quota.
    ///
    /// # Panics
    /// When the metric is of another schema.
    #[must_use]
    pub fn pressure_of(&self, metric: &Metric) -> Option<Pressure> {
        (metric.kind == MetricKind::Quota).then(|| self.pressure_at(self.slot(metric.key)))
    }

    fn pressure_at(&self, slot: usize) -> Pressure {
        let found = self.pressure.iter().find(|(at, _)| *at == slot);
        found.map_or_else(Pressure::default, |(_, pressure)| *pressure)
    }
}
