//! Hierarchical rates: a take is granted by every level up to the root, or by none.

use std::fmt;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use submeter_percpu::{
    InvalidRateError, InvalidWeightError, LimitMode, Rate, Throttled, TokenBucket,
};

use crate::metric::schema::{Key, RateLimit};
use crate::metric::unit::Unit;
use crate::retry;
use crate::tree::buckets::OwnRates;
use crate::tree::group::{Group, wrong_schema};

impl Group {
    /// Sets or removes how much this group and its descendants may take per time.
    ///
    /// The amount that can be taken now stays as it is, up to the new burst, so setting a rate
    /// again grants nothing. With the first rate a whole burst can be taken. A debt remains for as
    /// long as it would have, even while there is no rate. The first time costs an allocation. A
    /// concurrent take is decided by either the old rate or the new one.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let tree = Tree::new(schema.build()?)?;
    /// // 20,000 per second, up to 500 of them at once.
    /// let rate = Rate { burst: 500, ..Rate::new(20_000, Duration::from_secs(1)) };
    /// tree.root().set_rate(requests, Some(rate))?;
    /// assert_eq!(tree.root().rate(requests), Some(rate));
    /// let error = tree.root().set_rate(requests, Some(Rate { burst: 0, ..rate }));
    /// println!("{}", error.expect_err("it would grant nothing"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When its amount, period or burst is out of range; then nothing changes. A rate that grants
    /// nothing is [`Rate::NOTHING`].
    ///
    /// # Panics
    /// When the limit is of another tree's schema; in a forked child in which a thread of the
    /// parent stayed behind while it set the same rate.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_rate<U: Unit>(
        &self,
        limit: RateLimit<U>,
        rate: Option<Rate>,
    ) -> Result<(), InvalidRateError> {
        let slot = self.rate_slot(limit.key);
        if rate.is_none() && self.inner.extras.rate(slot).is_none() {
            return Ok(());
        }
        self.make_rates()[slot].set_rate(rate)
    }

    /// Returns the group's own rate.
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn rate<U: Unit>(&self, limit: RateLimit<U>) -> Option<Rate> {
        self.inner.extras.rate(self.rate_slot(limit.key))?.rate()
    }

    /// Sets what this group's rate does with a take that exceeds it, and with work that it would
    /// not [admit](Group::try_admit). Rates are enforced unless they are made soft. A soft rate
    /// shows whom it would hit before it is enforced: see [`RateLimit::overdrafts`].
    ///
    /// A soft rate grants what it would refuse, and takes nothing for it, so that it counts what an
    /// enforced one would refuse. Of a budget, it ignores what is [spent](Group::spend) after work
    /// that it would not have admitted, until it admits some. That is an estimate if other work of
    /// the group runs at the same time, because spending does not tell which work it belongs to.
    /// Rates of ancestors keep their own modes: of what one soft rate would refuse, the others take
    /// nothing either, and it counts where an enforced tree would refuse it. Enforced rates do take
    /// it. The first time costs an allocation.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, LimitMode, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let tree = Tree::new(schema.build()?)?;
    /// let acme = tree.create("/acme")?;
    /// acme.set_rate(requests, Some(Rate::new(2, Duration::from_secs(3600))))?;
    /// acme.set_rate_mode(requests, LimitMode::Soft);
    /// for _ in 0..5 {
    ///     acme.try_take(requests, 1)?;
    /// }
    /// let counts = [requests.throttled(), requests.overdrafts()].map(|of| acme.sum(of));
    /// assert_eq!(counts, [0, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_rate_mode<U: Unit>(&self, limit: RateLimit<U>, mode: LimitMode) {
        let slot = self.rate_slot(limit.key);
        self.make_rates()[slot].set_mode(mode);
    }

    /// Counts a take that the soft rate of this group, or so many levels above it, would have
    /// refused.
    #[cold]
    pub(crate) fn count_overdraft<U: Unit>(&self, limit: RateLimit<U>, levels: usize) {
        let soft = self.and_ancestors().nth(levels).expect("a bucket of the group or an ancestor");
        soft.inc(limit.overdrafts());
    }

    /// Sets or removes the weight with which this group contends for its parent's rate: from 1 to
    /// 10,000, like a cgroup's `cpu.weight`.
    ///
    /// Where children have weights, half of the parent's burst and all of its rate are divided
    /// among the children that took or tried to take recently: within the time that earns a burst,
    /// but at least 10 ms. A child that keeps to its share is not refused because others want more;
    /// they divide the part that it leaves by their weights. Children without a weight get what
    /// those with one leave, and so do takes in the parent itself. Shares are kept on average; the
    /// rate is kept exactly, with or without them.
    ///
    /// A weight divides what a rate [set](Group::set_rate) above grants, and schedules nothing:
    /// without a rate there it has no effect, and what it refuses does not wait. For work that
    /// should have turns by weight among any number of places, see
    /// [`Admission::set_weight`](crate::admission::Admission::set_weight).
    ///
    /// Give the rate above a burst of ten takes or more. A full bucket is everybody's, so that with
    /// a burst of two takes weights of 1 and 3 divide by 31 to 69 percent, and with one by half.
    ///
    /// The first time costs an allocation. Takes cost two more loads per rate on their path; takes
    /// in groups with a weight also cost one more compare-and-swap. A weight is unnecessary where
    /// every tenant has a rate of its own and these add up to less than the parent's.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let tree = Tree::new(schema.build()?)?;
    /// // 100 per hour for all; when both want more, /gold gets three quarters.
    /// tree.root().set_rate(requests, Some(Rate::new(100, Duration::from_secs(3600))))?;
    /// let [gold, free] = [tree.create("/gold")?, tree.create("/free")?];
    /// gold.set_weight(requests, Some(300))?;
    /// free.set_weight(requests, Some(100))?;
    ///
    /// gold.try_take(requests, 1)?;
    /// let granted = (0..100).filter(|_| free.try_take(requests, 1).is_ok()).count();
    /// assert_eq!(granted, 49 + 12); // half of a burst is for all, and a fourth of the other half
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the weight is out of range; then nothing changes.
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    ///
    /// # Differences from Linux
    /// In Linux, weights divide a CPU or a disk, and `cpu.max` limits without dividing. Cgroups
    /// have a weight of 100 from the start. Here a weight is stored only where one was set, so that
    /// a group without one costs nothing.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_weight<U: Unit>(
        &self,
        limit: RateLimit<U>,
        weight: Option<u32>,
    ) -> Result<(), InvalidWeightError> {
        let slot = self.rate_slot(limit.key);
        if weight.is_none() && self.inner.extras.rate(slot).is_none() {
            return Ok(());
        }
        self.make_rates()[slot].set_weight(weight)
    }

    /// Returns the group's weight.
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn weight<U: Unit>(&self, limit: RateLimit<U>) -> Option<u32> {
        self.inner.extras.rate(self.rate_slot(limit.key))?.weight()
    }

    /// Takes `n` in this group and every ancestor, or in none. This uses up what their rates have
    /// earned, and they earn it again as time passes.
    ///
    /// Between any two moments a group and its descendants are granted at most its burst plus what
    /// its rate earns in between. Costs a look at each ancestor; if any has a rate, also a read of
    /// the clock and a compare-and-swap per rate. A refusal allocates, so it is not for signal
    /// handlers. For something that is given back after use, use a [`Quota`](crate::Quota).
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
    /// When a rate on the way to the root grants less at this moment. A concurrent take that
    /// another level refuses may count until it is undone. The refusal is counted in the group with
    /// that rate: see [`RateLimit::throttled`].
    ///
    /// # Panics
    /// When the limit is of another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_take<U: Unit>(&self, limit: RateLimit<U>, n: u64) -> Result<(), RateError> {
        let slot = self.rate_slot(limit.key);
        TokenBucket::try_take(self.buckets(slot), n, |levels| self.count_overdraft(limit, levels))
            .map_err(|throttled| RateError::new(self, limit, Some(n), throttled))
    }

    /// Returns the group's rates and weights by slot, for a snapshot.
    pub(crate) fn own_rates(&self) -> OwnRates {
        let slots = 0..self.schema().rate_limits().len();
        let set = slots.filter_map(|slot| {
            let bucket = self.inner.extras.rate(slot)?;
            Some((slot, bucket.rate(), bucket.weight()))
        });
        set.filter(|(_, rate, weight)| rate.is_some() || weight.is_some()).collect()
    }

    /// Returns the group's buckets, and creates them if missing.
    pub(crate) fn make_rates(&self) -> &Arc<[TokenBucket]> {
        self.inner.extras.make_rates(self.schema(), self.tree_stats().clock())
    }

    fn and_ancestors(&self) -> impl Iterator<Item = &Group> + Clone {
        successors(Some(self), |group| group.parent())
    }

    /// Returns the buckets of a rate limit, from this group's up to the root's.
    #[inline]
    pub(crate) fn buckets(
        &self,
        slot: usize,
    ) -> impl Iterator<Item = Option<&TokenBucket>> + Clone {
        self.and_ancestors().map(move |group| group.inner.extras.rate(slot))
    }

    /// Returns the slot of a rate limit, which must be of this tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn rate_slot(&self, key: Key) -> usize {
        if key.section != self.schema_id() {
            wrong_schema();
        }
        usize::from(key.slot)
    }
}

/// The error of a take that would exceed a rate, or of work that a rate does not admit. It names
/// the rate, and the time to retry.
///
/// Its text (`Display`) may be shown to the tenant. It contains the requested amount, the time to
/// retry, and the rate if it is the group's own: `1 more of requests would exceed the rate: 100 per
/// 1s, burst 20; retry after 9ms`. A rate above is only called `shared with others`.
/// [`detail`](Self::detail), `Debug` and the methods are for the program and its logs.
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
#[derive(Debug)]
pub struct RateError(Box<Refused>);

#[derive(Debug)]
struct Refused {
    group: Group,
    limiting: Group,
    slot: usize,
    /// `None` for work whose cost is not known.
    requested: Option<u64>,
    rate: Rate,
    by_share: bool,
    retry_after: Option<Duration>,
    killed: bool,
}

impl RateError {
    /// Makes the error and counts the refusal.
    #[cold]
    pub(crate) fn new<U: Unit>(
        group: &Group,
        limit: RateLimit<U>,
        requested: Option<u64>,
        throttled: Throttled,
    ) -> RateError {
        let Throttled { levels, retry_after_ns, throttled_ns, rate, by_share, .. } = throttled;
        let slot = usize::from(limit.key.slot);
        let limiting = group.and_ancestors().nth(levels);
        let limiting = limiting.expect("a bucket of the group or an ancestor");
        limiting.add(limit.throttled(), 1);
        limiting.add(limit.throttled_time(), throttled_ns);
        let (group, limiting) = (group.clone(), limiting.clone());
        let retry_after = retry_after_ns.map(Duration::from_nanos);
        RateError(Box::new(Refused {
            group,
            limiting,
            slot,
            requested,
            rate,
            by_share,
            retry_after,
            killed: false,
        }))
    }

    /// Marks it as the end of a wait: the group was killed.
    pub(crate) fn at_kill(mut self) -> RateError {
        (self.0.killed, self.0.retry_after) = (true, None);
        self
    }

    /// Returns the time after which the take would be granted if nothing else were taken: not a
    /// nanosecond earlier, unless a share refused it ([`is_by_share`](Self::is_by_share)) and
    /// others stop contending. Returns `None` if that is never, because the amount is more than a
    /// burst: take less at once. It is also `None` where the [rate](Self::rate) is
    /// [`Rate::NOTHING`], and once the group [was killed](Self::is_killed).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the group of the refused take.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Returns the group whose rate refused the take: the group itself, or an ancestor. If several
    /// refused it, returns the one that takes longest.
    #[must_use]
    pub fn limiting(&self) -> &Group {
        &self.0.limiting
    }

    /// Returns the requested amount; `None` for work whose cost was not known.
    #[must_use]
    pub fn requested(&self) -> Option<u64> {
        self.0.requested
    }

    /// Returns whether this ended a wait because the group was [killed](Group::kill) meanwhile.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.killed
    }

    /// Returns the name of the rate limit.
    #[must_use]
    pub fn name(&self) -> &str {
        let mut rate_limits = self.0.group.schema().rate_limits();
        let (name, _) = rate_limits.nth(self.0.slot).expect("a rate limit of its schema");
        name
    }

    /// Returns the rate that refused the take.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.0.rate
    }

    /// Returns whether that rate had enough, but not the group's share of it by its weight or an
    /// ancestor's: see [`Group::set_weight`].
    #[must_use]
    pub fn is_by_share(&self) -> bool {
        self.0.by_share
    }

    /// Returns the whole text, for logs, with the group of the take and that of the rate. Not for
    /// tenants: it names others.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Rate, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// tree.root().set_rate(requests, Some(Rate::new(10, hour)))?;
    /// let refused = tree.create("/web")?.try_take(requests, 11).expect_err("more than all of it");
    /// let told = "11 more of requests would exceed a rate shared with others; \
    ///             take at most the burst at once";
    /// assert_eq!(refused.to_string(), told);
    /// let detail = "/web: 11 more of requests would exceed the rate of /: 10 per 3600s, \
    ///               burst 10; take at most the burst at once";
    /// assert_eq!(refused.detail().to_string(), detail);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detail(&self) -> impl fmt::Display + '_ {
        Detail(self)
    }

    /// Writes the refused amount, the rate, and what to do.
    fn write(&self, f: &mut fmt::Formatter<'_>, rate: fmt::Arguments<'_>) -> fmt::Result {
        let name = self.name();
        match self.0.requested {
            _ if self.is_killed() => {
                return write!(f, "{name} cannot be waited for: the group was killed");
            }
            Some(n) => write!(f, "{n} more of {name} would exceed {rate}")?,
            None => write!(f, "no {name} left under {rate}")?,
        }
        match self.0.retry_after {
            Some(after) => retry::after(f, after),
            None if self.rate() == Rate::NOTHING => f.write_str("; retry later"),
            None => f.write_str("; take at most the burst at once"),
        }
    }
}

/// For the tenant: it says nothing about other groups.
impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { group, limiting, rate, by_share, .. } = &*self.0;
        match (group == limiting, by_share) {
            (true, _) => self.write(f, format_args!("the rate: {rate}")),
            (false, false) => self.write(f, format_args!("a rate shared with others")),
            (false, true) => self.write(f, format_args!("its share of a rate shared with others")),
        }
    }
}

/// For the program's logs.
struct Detail<'a>(&'a RateError);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { group, limiting, rate, by_share, .. } = &*self.0.0;
        let [group, limiting] = [group, limiting].map(|group| crate::visible(group.path()));
        let whose = if *by_share { "its share of the rate" } else { "the rate" };
        write!(f, "{group}: ")?;
        self.0.write(f, format_args!("{whose} of {limiting}: {rate}"))
    }
}

impl std::error::Error for RateError {}
