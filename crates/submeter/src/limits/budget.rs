//! Budgets: rates of usage that is known only afterwards, and waiting for a rate.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use submeter_percpu::TokenBucket;

use super::rate::RateError;
use crate::metric::schema::RateLimit;
use crate::metric::unit::Unit;
use crate::tree::group::Group;

/// The longest time until a waiter looks at its rate again, as the rate may have changed.
const LOOK: Duration = Duration::from_secs(1);

impl Group {
    /// Spends `n` in this group and every ancestor, whether they have as much or not. It is for
    /// usage that has happened already and could not be known before, such as rows read, bytes of
    /// an answer, or tokens of a model. CPU time is spent by the switch where the schema has a
    /// [`cpu_budget`](crate::SchemaBuilder::cpu_budget).
    ///
    /// A rate may then be in debt: it grants and [admits](Group::try_admit) nothing until the debt
    /// is earned. So between any two moments a group uses at most what its rate earns in between, a
    /// burst, and what the work uses that was in flight when the rate was used up. A debt of more
    /// than a year counts as one of a year. Costs as much as [`try_take`](Group::try_take), which
    /// is for amounts known before.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let rows = schema.rate_limit::<Count>("rows", "Rows read per time");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// acme.set_rate(rows, Some(Rate::new(1_000, Duration::from_secs(3600))))?;
    ///
    /// acme.try_admit(rows)?;
    /// // The query has read more than anyone expected.
    /// acme.spend(rows, 1_500);
    /// assert_eq!(acme.balance(rows), Some(-500));
    /// let refused = acme.try_admit(rows).expect_err("half an hour's rows are owed");
    /// assert!(refused.retry_after() > Some(Duration::from_secs(1700)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn spend<U: Unit>(&self, limit: RateLimit<U>, n: u64) {
        TokenBucket::spend(self.buckets(self.rate_slot(limit.key)), n);
    }

    /// Returns whether this group's rate and those of its ancestors have anything left, and takes
    /// nothing. Use it before work whose cost is [spent](Group::spend) once it is known.
    ///
    /// Costs a look at each ancestor and, if any has a rate, a read of the clock. A refusal
    /// allocates. Where groups have a [weight](Group::set_weight), those that ask contend.
    ///
    /// # Examples
    /// See [`spend`](Group::spend).
    ///
    /// # Errors
    /// When a rate on the way to the root is used up or in debt. The refusal is counted like that
    /// of a take.
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_admit<U: Unit>(&self, limit: RateLimit<U>) -> Result<(), RateError> {
        let slot = self.rate_slot(limit.key);
        TokenBucket::admit(self.buckets(slot), |levels| self.count_overdraft(limit, levels))
            .map_err(|throttled| RateError::new(self, limit, None, throttled))
    }

    /// Waits until [`try_admit`](Group::try_admit) admits work.
    ///
    /// `sleep` is the runtime's, as this crate has no timer. Waiters for one rate ask again at the
    /// same time, in no order; where tenants should have turns, use a [queue](crate::admission).
    /// Each waiter asks at least once per second, and each refusal is counted.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    /// use tokio::time::sleep;
    ///
    /// let mut schema = Schema::builder();
    /// let rows = schema.rate_limit::<Count>("rows", "Rows read per time");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_rate(rows, Some(Rate::new(1_000, Duration::from_secs(1))))?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// tree.root().spend(rows, 1_010);
    /// tree.root().admit(rows, sleep).await?; // after 11 ms
    /// # Ok::<(), submeter::RateError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the group is [killed](Group::kill) meanwhile, and when the wait would have no known
    /// end, as with [`Rate::NOTHING`](crate::Rate::NOTHING).
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    pub async fn admit<U: Unit, S: Future>(
        &self,
        limit: RateLimit<U>,
        sleep: impl FnMut(Duration) -> S,
    ) -> Result<(), RateError> {
        self.retry(|| self.try_admit(limit), sleep).await
    }

    /// Waits until [`try_take`](Group::try_take) grants `n`. For `sleep` and an example, see
    /// [`admit`](Group::admit).
    ///
    /// # Errors
    /// When `n` is more than a burst, when the group is [killed](Group::kill) meanwhile, and when
    /// the wait would have no known end, as with [`Rate::NOTHING`](crate::Rate::NOTHING).
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    pub async fn take<U: Unit, S: Future>(
        &self,
        limit: RateLimit<U>,
        n: u64,
        sleep: impl FnMut(Duration) -> S,
    ) -> Result<(), RateError> {
        self.retry(|| self.try_take(limit, n), sleep).await
    }

    async fn retry<S: Future>(
        &self,
        attempt: impl Fn() -> Result<(), RateError>,
        mut sleep: impl FnMut(Duration) -> S,
    ) -> Result<(), RateError> {
        let mut killed = pin!(self.killed());
        loop {
            let Err(refused) = attempt() else { return Ok(()) };
            let Some(after) = refused.retry_after() else { return Err(refused) };
            let mut timer = pin!(sleep(after.min(LOOK)));
            let ended = poll_fn(|context| match killed.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => timer.as_mut().poll(context).map(|_| false),
            });
            if ended.await {
                return Err(refused.at_kill());
            }
        }
    }

    /// Returns how much the group's own rate would grant at this moment or, below 0, how much it
    /// owes, either of them up to 2^63 - 1; `None` if it has no rate. Rates of ancestors may grant
    /// less.
    ///
    /// # Examples
    /// See [`spend`](Group::spend).
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn balance<U: Unit>(&self, limit: RateLimit<U>) -> Option<i64> {
        self.inner.extras.rate(self.rate_slot(limit.key))?.balance()
    }
}
