//! Buckets by the system's clock.

use std::fmt;

use super::bucket::{self, Bucket};
use super::{InvalidRateError, InvalidWeightError, Rate, TestClock};
use crate::LimitMode;
use crate::process_lock::ProcessMutex;
use crate::uptime;

/// A limit of how much may be taken per time, by all threads together: a token bucket.
///
/// Between any two moments at most the burst and the earnings of the time in between are granted; a
/// take costs a look at the clock and a compare-and-swap. Each take may cost up to a nanosecond of
/// the rate more than its part. For what is given back, such as memory, use a
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
    /// In place of the system's.
    clock: Option<TestClock>,
}

/// A refusal of a take by a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Throttled {
    /// How many levels above the lowest the limiting bucket is: the one that takes longest.
    pub levels: usize,
    /// After which time the take would be granted, if nothing else were taken; earlier, if it is a
    /// share that refused it and others stop contending. `None` for never, as it is more than a
    /// burst, which [`Rate::NOTHING`] has none of.
    pub retry_after_ns: Option<u64>,
    /// How much of the time in which this bucket refuses no refusal has reported before: up to a
    /// second from now. More than a second where refusals before this one said a longer time.
    pub throttled_ns: u64,
    /// The rate that refused.
    pub rate: Rate,
    /// Whether the rate had enough, and the share of the level below it did not: see
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
        uptime::begin();
        TokenBucket { bucket: Bucket::new(), setting: ProcessMutex::new(()), clock: None }
    }

    /// Creates a bucket whose time is that of a test. Buckets of one take have the same clock: that
    /// of the lowest one counts.
    #[must_use]
    pub fn with_clock(clock: &TestClock) -> TokenBucket {
        TokenBucket { clock: Some(clock.clone()), ..TokenBucket::new() }
    }

    /// Sets or removes the rate. The amount that can be taken stays, up to the new burst; with the
    /// first rate the bucket is full. A debt stays, too: without a rate, and by one of
    /// [nothing](Rate::NOTHING), for as long as it would have taken.
    ///
    /// # Errors
    /// When the rate makes no sense or is out of range; nothing changes then.
    ///
    /// # Panics
    /// In a forked child in which a thread stayed behind while it set the rate.
    pub fn set_rate(&self, rate: Option<Rate>) -> Result<(), InvalidRateError> {
        let terms = rate.map(Rate::terms).transpose()?;
        let _setting = self.setting.lock();
        self.bucket.set(terms, self.now_ns());
        Ok(())
    }

    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.bucket.terms().map(Rate::from)
    }

    /// Says what it does with a take that exceeds it. A [soft](LimitMode::Soft) one grants that,
    /// takes nothing for it, and says so. Nor is anything taken for what is
    /// [spent](TokenBucket::spend) until it [admits](TokenBucket::admit) something as an enforced
    /// one would: that would not have admitted what is spent meanwhile.
    pub fn set_mode(&self, mode: LimitMode) {
        self.bucket.set_soft(mode == LimitMode::Soft);
    }

    /// Returns what it does with a take that exceeds it.
    #[must_use]
    pub fn mode(&self) -> LimitMode {
        if self.bucket.is_soft() { LimitMode::Soft } else { LimitMode::Enforced }
    }

    /// Returns how much can be taken at this moment or, below 0, how much was
    /// [spent](TokenBucket::spend) that has still to be earned; `None` without a rate.
    #[must_use]
    pub fn balance(&self) -> Option<i64> {
        self.bucket.balance(self.now_ns())
    }

    /// Returns how much can be taken at this moment; `None` without a rate.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        self.bucket.available(self.now_ns())
    }

    /// Sets the weight with which this level contends for the rate of the level above it, from its
    /// next period on; `None` for none. The error is for weights that are not from 1 to 10,000.
    ///
    /// While less than half a burst is left there, a level that contends may take its share: its
    /// weight's part of what contended lately, at the rate, and as large a part of that half at
    /// once. Others take the part that it does not want, by their weights. Levels without a weight
    /// take what is left. Where no level has one, there are no shares, and a take costs two loads
    /// more.
    ///
    /// # Errors
    /// As above; nothing changes then.
    pub fn set_weight(&self, weight: Option<u32>) -> Result<(), InvalidWeightError> {
        self.bucket.share.set_weight(weight.map_or(Ok(0), InvalidWeightError::check)?);
        Ok(())
    }

    /// Returns the weight.
    #[must_use]
    pub fn weight(&self) -> Option<u32> {
        Some(self.bucket.share.weight()).filter(|&weight| weight > 0)
    }

    /// Takes `n` of every bucket, from the lowest level to the highest, or of none. `None` is a
    /// level without one. Once it is granted it calls `over` with the level of each
    /// [soft](TokenBucket::set_mode) one that it goes beyond. Where no bucket has a rate, it does
    /// not look at the clock. May be called in a signal handler.
    ///
    /// # Errors
    /// When one of them has less. A take at the same time that another level is about to refuse
    /// may count for as long as that.
    #[inline]
    pub fn try_take<'a>(
        levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone,
        n: u64,
        over: impl FnMut(usize),
    ) -> Result<(), Throttled> {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        bucket::take_all(buckets, n, || now_ns(levels.clone()), over).map_err(Throttled::from)
    }

    /// Takes `n` of every bucket, whether there is as much or not: for amounts that were used
    /// already, and are known only now. A bucket may owe then: it grants nothing until that is
    /// earned.
    ///
    /// Where it is asked to [`admit`](TokenBucket::admit) what spends, it is spent between any two
    /// moments no more than the burst, what the rate earns in between, and what those spend that
    /// were admitted before the last of it was. Costs as much as a take. A debt of more than a year
    /// counts as one of a year; what is spent by a rate of [nothing](Rate::NOTHING) is forgotten.
    #[inline]
    pub fn spend<'a>(levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone, n: u64) {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        bucket::spend_all(buckets, n, || now_ns(levels.clone()));
    }

    /// Returns whether no bucket is empty or owes, nor what its share of one above it is; takes
    /// nothing. For work whose cost, which it [spends](TokenBucket::spend), is known only
    /// afterwards. `over` is as that of [`try_take`](TokenBucket::try_take).
    ///
    /// # Errors
    /// When one of them has nothing left.
    #[inline]
    pub fn admit<'a>(
        levels: impl Iterator<Item = Option<&'a TokenBucket>> + Clone,
        over: impl FnMut(usize),
    ) -> Result<(), Throttled> {
        let buckets = levels.clone().map(|level| level.map(|level| &level.bucket));
        bucket::admit_all(buckets, || now_ns(levels.clone()), over).map_err(Throttled::from)
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        let now = self.clock.as_ref().map_or_else(uptime::get, TestClock::elapsed);
        // Wraps around after centuries.
        now.as_nanos() as u64
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

/// The time of a take: there is a bucket, or nothing would ask.
fn now_ns<'a>(levels: impl Iterator<Item = Option<&'a TokenBucket>>) -> u64 {
    levels.flatten().next().map_or(0, TokenBucket::now_ns)
}
