//! Buckets that use the system's clock.

use std::fmt;

use super::bucket::{self, Bucket};
use super::path;
use super::{InvalidRateError, InvalidWeightError, Rate};
use crate::LimitMode;
use crate::clock::Clock;
use crate::process_lock::ProcessMutex;

/// A token bucket: a limit on the amount that all threads together may take per time.
///
/// Between any two moments at most the burst and the earnings of the time in between are granted; a
/// take costs one clock reading and a compare-and-swap. Each take may cost up to a nanosecond of
/// the rate more than its part. For resources that are given back, such as memory, use a
/// [`LimitNode`](crate::LimitNode).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_percpu::{Rate, TokenBucket};
///
/// let [tenant, all] = [TokenBucket::new(), TokenBucket::new()];
/// tenant.set_rate(Some(Rate::new(10, Duration::from_secs(3600))))?;
/// assert!(TokenBucket::try_take([Some(&tenant), None, Some(&all)].into_iter(), 10, drop).is_ok());
/// let tenant = [Some(&tenant)].into_iter();
/// let refused = TokenBucket::try_take(tenant, 1, drop).expect_err("all taken");
/// assert_eq!(refused.levels, 0);
/// # Ok::<(), submeter_percpu::InvalidRateError>(())
/// ```
pub struct TokenBucket {
    bucket: Bucket,
    /// Held while a rate is set.
    setting: ProcessMutex<()>,
    clock: Clock,
}

/// A refusal of a take by a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Throttled {
    /// Number of levels from the lowest to the limiting bucket, which is the one that takes
    /// longest.
    pub levels: usize,
    /// The time after which the take would be granted if nothing else were taken; it may be granted
    /// earlier if a share refused it and others stop contending. `None` if never, because the take
    /// is larger than a burst; [`Rate::NOTHING`] has no burst.
    pub retry_after_ns: Option<u64>,
    /// The time in which this bucket refuses that no earlier refusal has reported, up to a second
    /// from now. It exceeds a second where earlier refusals named a longer time.
    pub throttled_ns: u64,
    /// The rate that refused.
    pub rate: Rate,
    /// Whether the rate had enough, but the share of the level below it did not: see
    /// [`TokenBucket::set_weight`].
    pub by_share: bool,
}

impl From<bucket::Refused> for Throttled {
    fn from(refused: bucket::Refused) -> Throttled {
        let bucket::Refused { levels, wait_ns, throttled_ns, terms, by_share } = refused;
        Throttled { levels, retry_after_ns: wait_ns, throttled_ns, rate: terms.into(), by_share }
    }
}

impl TokenBucket {
    /// Creates a bucket without a rate, which refuses nothing.
    #[must_use]
    pub fn new() -> TokenBucket {
        TokenBucket::with_clock(Clock::default())
    }

    /// Creates a bucket that uses this clock, such as a reference to a test's. All buckets of one
    /// take must have the same clock: that of the lowest one is used.
    #[must_use]
    pub fn with_clock(clock: impl Into<Clock>) -> TokenBucket {
        let (bucket, setting) = (Bucket::new(), ProcessMutex::new(()));
        TokenBucket { bucket, setting, clock: clock.into() }
    }

    /// Sets or removes the rate. The amount that can be taken stays, up to the new burst; with the
    /// first rate the bucket is full. A debt stays, too: without a rate, and with a rate of
    /// [nothing](Rate::NOTHING), for as long as before.
    ///
    /// # Errors
    /// When the rate is meaningless or out of range. In that case nothing changes.
    ///
    /// # Panics
    /// In a forked child whose fork left a thread behind while it set the rate.
    pub fn set_rate(&self, rate: Option<Rate>) -> Result<(), InvalidRateError> {
        let terms = rate.map(Rate::terms).transpose()?;
        let _setting = self.setting.lock();
        self.bucket.set(terms, self.clock.now_ns());
        Ok(())
    }

    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.bucket.terms().map(Rate::from)
    }

    /// Sets how the bucket treats a take that exceeds it. A [soft](LimitMode::Soft) one grants the
    /// take, takes nothing for it, and reports it; nor do soft ones below and above it take any.
    /// After that it takes nothing for amounts [spent](TokenBucket::spend) either, until it
    /// [admits](TokenBucket::admit) something that an enforced one would admit: an enforced one
    /// would not have admitted the work that spends in the meantime.
    pub fn set_mode(&self, mode: LimitMode) {
        self.bucket.set_soft(mode == LimitMode::Soft);
    }

    /// Returns the amount that can be taken now or, if negative, the amount
    /// [spent](TokenBucket::spend) that has still to be earned; `None` without a rate.
    #[must_use]
    pub fn balance(&self) -> Option<i64> {
        self.bucket.balance(self.clock.now_ns())
    }

    /// Sets the weight with which this level contends for the rate of the level above it, from its
    /// next period on; `None` for no weight.
    ///
    /// While less than half a burst is left there, a level that contends may take its share: its
    /// weight's fraction, among recent contenders, of the rate, and the same fraction of that half
    /// at once. Others take the part that it does not want, by their weights. Levels without a
    /// weight take the rest. Where no level has a weight, there are no shares, and a take costs two
    /// more loads. A full bucket is everybody's: where a take is a third of the burst or more,
    /// weights have little effect, and none where it is the whole burst.
    ///
    /// # Errors
    /// When the weight is not from 1 to 10,000. In that case nothing changes.
    pub fn set_weight(&self, weight: Option<u32>) -> Result<(), InvalidWeightError> {
        self.bucket.share.set_weight(weight.map_or(Ok(0), InvalidWeightError::check)?);
        Ok(())
    }

    /// Returns the weight.
    #[must_use]
    pub fn weight(&self) -> Option<u32> {
        Some(self.bucket.share.weight()).filter(|&weight| weight > 0)
    }

    /// Takes `n` from every bucket, from the lowest level to the highest, or from none. `None` is a
    /// level without a bucket. A grant that enforced buckets would refuse calls `over` with the
    /// level of the [soft](TokenBucket::set_mode) one that would refuse it for longest. Where no
    /// bucket has a rate, it does not read the clock. It may be called in a signal handler.
    ///
    /// # Errors
    /// When one of them has less. A concurrent take that another level is about to refuse may count
    /// until it is refused.
    #[inline]
    pub fn try_take<'a>(
        levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone,
        n: u64,
        over: impl FnMut(usize),
    ) -> Result<(), Throttled> {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        path::take_all(buckets, n, || now_ns(levels.clone()), over).map_err(Throttled::from)
    }

    /// Takes `n` from every bucket, whether there is that much or not: for amounts that have
    /// already been used, and are known only now. This may put a bucket in debt: it then grants
    /// nothing until the debt is earned.
    ///
    /// If the bucket [admits](TokenBucket::admit) all work that spends, the amount spent between
    /// any two moments is at most the burst, the earnings of the time in between, and the spending
    /// of work that was admitted before the budget was used up. It costs as much as a take. A debt
    /// of more than a year counts as one of a year; amounts spent at a rate of
    /// [nothing](Rate::NOTHING) are forgotten.
    #[inline]
    pub fn spend<'a>(levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone, n: u64) {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        path::spend_all(buckets, n, || now_ns(levels.clone()));
    }

    /// Checks that no bucket, and no share of one above it, is empty or in debt; takes nothing. For
    /// work whose cost is known only afterwards, and is then [spent](TokenBucket::spend). `over` is
    /// called as by [`try_take`](TokenBucket::try_take).
    ///
    /// # Errors
    /// When one of them has nothing left.
    #[inline]
    pub fn admit<'a>(
        levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone,
        over: impl FnMut(usize),
    ) -> Result<(), Throttled> {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        path::admit_all(buckets, || now_ns(levels.clone()), over).map_err(Throttled::from)
    }
}

impl Default for TokenBucket {
    fn default() -> TokenBucket {
        TokenBucket::new()
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket").field("rate", &self.rate()).finish_non_exhaustive()
    }
}

/// Returns the time of a take. There is a bucket, or the time would not be needed.
fn now_ns<'a>(levels: impl Iterator<Item = Option<&'a TokenBucket>>) -> u64 {
    levels.flatten().next().map_or(0, |bucket| bucket.clock.now_ns())
}
