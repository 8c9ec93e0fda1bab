//! The rates that a tenant keeps when its group is deleted and created again.

use std::fmt;
use std::sync::Arc;

use submeter_percpu::TokenBucket;

use crate::tree::group::{Group, wrong_schema};

/// The rates and weights of a group, with the amounts taken: a tenant keeps them when its group is
/// deleted and created again.
///
/// A new group's buckets are full, so a tenant that can have its group deleted and created again
/// gets a burst each time. Where names return, keep the state of those that have a rate, and let
/// the next group of that name [share](Group::share_rates) it. The state holds no group: the old
/// one is released as usual, and until then takes from the same buckets.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Rate, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.rate_limit::<Count>("requests", "Requests");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// acme.set_rate(requests, Some(Rate::new(100, Duration::from_secs(3600))))?;
/// acme.try_take(requests, 70)?;
/// let kept = acme.rate_state();
/// acme.kill()?;
///
/// let acme = tree.create("/acme")?;
/// assert!(acme.share_rates(&kept));
/// assert_eq!(acme.balance(requests), Some(30));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateState {
    buckets: Arc<[TokenBucket]>,
    schema: u32,
}

impl Group {
    /// Returns the state of the group's own rates, for its successor: see [`RateState`]. Costs an
    /// allocation if none was ever set.
    #[must_use]
    pub fn rate_state(&self) -> RateState {
        let buckets = Arc::clone(self.make_rates());
        RateState { buckets, schema: self.schema_id() }
    }

    /// Takes over the rates and weights of another group, or of one that was killed, and shares
    /// them with it from now on: a take in either counts in both, and a rate set in one is set in
    /// the other. Below another parent, a weight counts among the siblings there from its next
    /// [period](Group::set_weight) on. Returns whether it did so: a group whose rates were set
    /// before keeps its own.
    ///
    /// # Panics
    /// When the state is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn share_rates(&self, state: &RateState) -> bool {
        if state.schema != self.schema_id() {
            wrong_schema();
        }
        self.inner.extras.rates().share(&state.buckets)
    }
}

impl fmt::Debug for RateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateState").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}
