//! What became of charges that found no room: refused, or waiting.

use submeter_percpu::Pressure;

use super::GroupValues;
use crate::metric::schema::{Key, Metric, MetricKind, Quota};
use crate::metric::unit::Unit;

impl GroupValues {
    /// Returns how many charges of a quota were refused by the limits of the group and of those
    /// below it, killed ones included, as of the flush. [`Usage`] has the refusals of the group's
    /// own limit. Panics when the quota belongs to another schema.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// web.set_limit(memory, Some(100));
    /// web.try_charge(memory, 101).expect_err("its own limit");
    ///
    /// let snapshot = tree.snapshot();
    /// let acme = snapshot.get("/acme").expect("exists");
    /// assert_eq!((acme.refused(memory), acme.usage(memory).refused), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Usage`]: crate::Usage
    #[must_use]
    pub fn refused<U: Unit>(&self, quota: Quota<U>) -> u64 {
        self.refused_at(quota.key)
    }

    /// Returns [`refused`](GroupValues::refused) for any metric of this snapshot's schema; `None`
    /// for one that is not a quota.
    ///
    /// # Panics
    /// When the metric belongs to another schema.
    #[must_use]
    pub fn refused_of(&self, metric: &Metric) -> Option<u64> {
        (metric.kind == MetricKind::Quota).then(|| self.refused_at(metric.key))
    }

    fn refused_at(&self, quota: Key) -> u64 {
        self.slot(quota);
        self.words.get(self.schema.refused_word(quota)).cast_unsigned()
    }

    /// Returns for how long charges waited for room of a quota, up to the snapshot. Panics when it
    /// belongs to another schema.
    #[must_use]
    pub fn pressure<U: Unit>(&self, quota: Quota<U>) -> Pressure {
        self.pressure_at(self.slot(quota.key))
    }

    /// Returns [`pressure`](GroupValues::pressure) for any metric of this snapshot's schema; `None`
    /// for one that is not a quota.
    ///
    /// # Panics
    /// When the metric belongs to another schema.
    #[must_use]
    pub fn pressure_of(&self, metric: &Metric) -> Option<Pressure> {
        (metric.kind == MetricKind::Quota).then(|| self.pressure_at(self.slot(metric.key)))
    }

    fn pressure_at(&self, slot: usize) -> Pressure {
        let found = self.pressure.iter().find(|(at, _)| *at == slot);
        found.map_or_else(Pressure::default, |(_, pressure)| *pressure)
    }
}
