//! Hierarchical rates: a take is granted by every level up to the root, or by none.

use std::fmt;
use std::iter::successors;
use std::time::Duration;

use submeter_percpu::{InvalidRateError, Rate, Throttled, TokenBucket};

use crate::group::{Group, wrong_schema};
use crate::schema::{Key, RateLimit};
use crate::unit::Unit;

impl Group {
    /// Sets or removes how much this group and its descendants may take per time.
    ///
    /// What can be taken at this moment stays as it is, up to the new burst, so that setting a rate
    /// again grants nothing; with the first rate a whole burst can be taken. Costs an allocation
    /// the first time. A take at the same time goes by the old rate or by the new one.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let tree = Tree::new(schema.build()?)?;
    /// // 20,000 a second, 500 of them at once.
    /// let rate = Rate { burst: 500, ..Rate::new(20_000, Duration::from_secs(1)) };
    /// tree.root().set_rate(requests, Some(rate))?;
    /// assert_eq!(tree.root().rate(requests), Some(rate));
    /// let error = tree.root().set_rate(requests, Some(Rate { burst: 0, ..rate }));
    /// println!("{}", error.expect_err("it would grant nothing"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the rate grants nothing, or its period or burst is out of range; nothing changes then.
    ///
    /// # Panics
    /// When the limit is of another tree's schema; in a forked child in which a thread stayed
    /// behind while it set the same rate.
    pub fn set_rate<U: Unit>(
        &self,
        limit: RateLimit<U>,
        rate: Option<Rate>,
    ) -> Result<(), InvalidRateError> {
        let slot = self.rate_slot(limit.key);
        if rate.is_none() && self.inner.rates.at(slot).is_none() {
            return Ok(());
        }
        self.inner.rates.create(self.schema())[slot].set_rate(rate)
    }

    /// Returns the group's own rate.
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[must_use]
    pub fn rate<U: Unit>(&self, limit: RateLimit<U>) -> Option<Rate> {
        self.inner.rates.at(self.rate_slot(limit.key))?.rate()
    }

    /// Returns how much the group's own rate would let be taken at this moment, or `None` if it has
    /// none. Rates of ancestors may grant less.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Rate, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// tree.root().set_rate(requests, Some(Rate::new(10, hour)))?;
    /// tree.create("/web")?.try_take(requests, 4)?;
    /// assert_eq!(tree.root().available(requests), Some(6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[must_use]
    pub fn available<U: Unit>(&self, limit: RateLimit<U>) -> Option<u64> {
        self.inner.rates.at(self.rate_slot(limit.key))?.available()
    }

    /// Takes `n` in this group and every ancestor, or in none: what rates grant is used up by it,
    /// and earned again as time passes.
    ///
    /// Between any two moments a group and its descendants are granted no more than its burst and
    /// what its rate earns in between. Costs a look at each ancestor; where one has a rate, a look
    /// at the clock and a compare-and-swap for each that has. A refusal allocates, so it is not for
    /// signal handlers. For what is given back after use, take a [`Quota`](crate::Quota).
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
    ///
    /// let web = acme.create_child("web")?;
    /// web.try_take(requests, 100)?;
    /// let refused = web.try_take(requests, 1).expect_err("all 100 are taken");
    /// assert_eq!(refused.limiting(), &acme);
    /// assert!(refused.retry_after() <= Some(Duration::from_secs(36)));
    /// assert_eq!(acme.sum(requests.throttled()), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a rate on the way to the root grants less at this moment. A take at the same time that
    /// another level refuses may count for as long as that. The refusal is counted in the group
    /// whose rate it was: see [`RateLimit::throttled`].
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[inline]
    pub fn try_take<U: Unit>(&self, limit: RateLimit<U>, n: u64) -> Result<(), RateError> {
        let slot = self.rate_slot(limit.key);
        let buckets = self.and_ancestors().map(|group| group.inner.rates.at(slot));
        TokenBucket::try_take(buckets, n)
            .map_err(|throttled| RateError::new(self, limit, n, throttled))
    }

    fn and_ancestors(&self) -> impl Iterator<Item = &Group> + Clone {
        successors(Some(self), |group| group.parent())
    }

    /// Returns the slot of a rate limit, which must be of this tree's schema.
    #[inline]
    fn rate_slot(&self, key: Key) -> usize {
        if key.section != self.schema_id() {
            wrong_schema();
        }
        usize::from(key.slot)
    }
}

/// The error of a take that would exceed a rate. It says which, and when to try again.
///
/// Its text can go to the tenant: `/acme/web: 1 more of requests would exceed the rate of /acme:
/// 100 per 1s, burst 20; retry after 8.2ms`.
#[derive(Debug)]
pub struct RateError(Box<Refused>);

#[derive(Debug)]
struct Refused {
    group: Group,
    limiting: Group,
    slot: usize,
    requested: u64,
    rate: Rate,
    retry_after: Option<Duration>,
}

impl RateError {
    /// Counts the refusal, too.
    #[cold]
    fn new<U: Unit>(
        group: &Group,
        limit: RateLimit<U>,
        requested: u64,
        throttled: Throttled,
    ) -> RateError {
        let Throttled { levels, retry_after_ns, throttled_ns, rate, .. } = throttled;
        let slot = usize::from(limit.key.slot);
        let limiting = group.and_ancestors().nth(levels);
        let limiting = limiting.expect("a bucket is of a group up to the root");
        limiting.add(limit.throttled(), 1);
        limiting.add(limit.throttled_time(), throttled_ns);
        let (group, limiting) = (group.clone(), limiting.clone());
        let retry_after = retry_after_ns.map(Duration::from_nanos);
        RateError(Box::new(Refused { group, limiting, slot, requested, rate, retry_after }))
    }

    /// Returns after which time the take would be granted if nothing else were taken: not a
    /// nanosecond earlier. `None` if never, as it is more than a burst: take less at once.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Rate, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// tree.root().set_rate(requests, Some(Rate::new(10, hour)))?;
    /// let refused = tree.root().try_take(requests, 11).expect_err("more than all of it");
    /// assert_eq!(refused.retry_after(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the group of the refused take.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Returns the group whose rate refused the take: the group itself, or an ancestor. Where
    /// several refused it, the one that takes longest.
    #[must_use]
    pub fn limiting(&self) -> &Group {
        &self.0.limiting
    }

    /// Returns the requested amount.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.0.requested
    }

    /// Returns the name of the rate limit.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.group.schema().rate_limits()[self.0.slot]
    }

    /// Returns the rate that refused the take.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.0.rate
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { group, limiting, requested, rate, retry_after, .. } = &*self.0;
        let name = self.name();
        let (group, limiting) = (group.path(), limiting.path());
        write!(
            f,
            "{group}: {requested} more of {name} would exceed the rate of {limiting}: {rate}"
        )?;
        match retry_after {
            Some(after) => write!(f, "; retry after {after:?}"),
            None => write!(f, "; take at most the burst at once"),
        }
    }
}

impl std::error::Error for RateError {}
