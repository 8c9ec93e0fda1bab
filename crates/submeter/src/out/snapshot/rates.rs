//! The rates and weights that groups had.

use submeter_percpu::Rate;

use super::GroupValues;
use crate::metric::schema::RateLimit;
use crate::metric::unit::Unit;

impl GroupValues {
    /// Returns the group's own rate at the moment of the snapshot, and the weight with which it
    /// contends for its parent's. Panics when the limit is of another schema.
    #[must_use]
    pub fn rate<U: Unit>(&self, limit: RateLimit<U>) -> (Option<Rate>, Option<u32>) {
        let slot = self.slot(limit.key);
        let set = self.rates.iter().find(|(at, ..)| *at == slot);
        set.map_or((None, None), |&(_, rate, weight)| (rate, weight))
    }
}
