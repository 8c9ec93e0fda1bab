//! The rates and weights that groups had.

use submeter_percpu::Rate;

use super::GroupValues;
use crate::metric::schema::RateLimit;
use crate::metric::unit::Unit;

impl GroupValues {
    /// Returns the group's own rate at the moment of the snapshot, and the weight with which it
    /// contends for its parent's. Panics when the limit belongs to another schema.
    #[must_use]
    pub fn rate<U: Unit>(&self, limit: RateLimit<U>) -> (Option<Rate>, Option<u32>) {
        self.rate_at(self.slot(limit.key))
    }

    /// Returns the [`rate`](GroupValues::rate) of the rate limit with that name in
    /// [`Schema::rate_limits`](crate::Schema::rate_limits); `None` if there is none.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let sent = schema.rate_limit::<Bytes>("sent", "Bytes sent per time");
    /// let tree = Tree::new(schema.build()?)?;
    /// let rate = Rate::new(1 << 20, std::time::Duration::from_secs(1));
    /// tree.root().set_rate(sent, Some(rate))?;
    /// let snapshot = tree.snapshot();
    /// let root = &snapshot.groups()[0];
    /// assert_eq!(root.rate_of("sent"), Some((Some(rate), None)));
    /// assert_eq!(root.rate_of("received"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn rate_of(&self, name: &str) -> Option<(Option<Rate>, Option<u32>)> {
        let slot = self.schema.rate_limits().position(|(known, _)| known == name)?;
        Some(self.rate_at(slot))
    }

    fn rate_at(&self, slot: usize) -> (Option<Rate>, Option<u32>) {
        let set = self.rates.iter().find(|(at, ..)| *at == slot);
        set.map_or((None, None), |&(_, rate, weight)| (rate, weight))
    }
}
