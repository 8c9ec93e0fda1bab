//! Which rates and weights groups had.

use submeter_percpu::Rate;

use super::GroupValues;
use crate::metric::schema::RateLimit;
use crate::metric::unit::Unit;

impl GroupValues {
    /// Returns the group's own rate at the moment of the snapshot, and the weight with which it
    /// contends for its parent's. Panics when the limit is of another schema.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let tree = Tree::new(schema.build()?)?;
    /// let rate = Rate::new(20_000, Duration::from_secs(1));
    /// tree.create("/web")?.set_rate(requests, Some(rate))?;
    /// let snapshot = tree.snapshot();
    /// let web = snapshot.get("/web").expect("created above");
    /// assert_eq!(web.rate(requests), (Some(rate), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn rate<U: Unit>(&self, limit: RateLimit<U>) -> (Option<Rate>, Option<u32>) {
        let slot = self.slot(limit.key);
        let set = self.rates.iter().find(|(at, ..)| *at == slot);
        set.map_or((None, None), |&(_, rate, weight)| (rate, weight))
    }
}
