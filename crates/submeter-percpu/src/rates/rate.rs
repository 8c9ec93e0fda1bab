//! Amounts per time, and which of them are invalid.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::bucket::{LONGEST_NS, Terms};

/// Minimum time to earn a token for it to be rounded to whole nanoseconds.
const TOKEN_NS_MIN: u64 = 10_000;

/// The amount that may be taken per time: `amount` in each `per` in the long run, and up to `burst`
/// at once after a pause; or [nothing](Rate::NOTHING).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_percpu::Rate;
///
/// // 100 a second, 20 of them at once.
/// let rate = Rate { burst: 20, ..Rate::new(100, Duration::from_secs(1)) };
/// assert_eq!(rate.to_string(), "100 per 1s, burst 20");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The amount that each period earns.
    pub amount: u64,
    /// The period.
    pub per: Duration,
    /// Maximum amount that can be taken at once.
    pub burst: u64,
}

impl Rate {
    /// The rate that refuses each take of more than 0, and names no time to retry: for rates that
    /// another party grants, and has not granted yet.
    ///
    /// A bucket is empty when it gets its next rate, so a bucket that starts with this one grants
    /// only what it has earned since. Refusals are counted, but no waiting time. `check` and
    /// `set_rate` accept no other rate of 0.
    pub const NOTHING: Rate = Rate { amount: 0, per: Duration::ZERO, burst: 0 };

    /// Returns a rate of `amount` in each `per`, all of it at once if need be.
    #[must_use]
    pub const fn new(amount: u64, per: Duration) -> Rate {
        Rate { amount, per, burst: amount }
    }

    /// Checks whether a bucket can keep this rate, for callers that read it from a file.
    ///
    /// # Errors
    /// When its amount or burst is 0, except for [`Rate::NOTHING`], or its period or burst is out
    /// of range.
    pub fn check(self) -> Result<(), InvalidRateError> {
        self.terms().map(|_| ())
    }

    /// Returns the figures that a bucket compares.
    pub(super) fn terms(self) -> Result<Terms, InvalidRateError> {
        let wrong = |what| InvalidRateError { rate: self, what };
        let Rate { amount, per, burst } = self;
        if self == Rate::NOTHING {
            return Ok(Terms::NOTHING);
        }
        if amount == 0 {
            return Err(wrong(What::Amount));
        }
        if per.is_zero() {
            return Err(wrong(What::Period));
        }
        if burst == 0 {
            return Err(wrong(What::Burst));
        }
        let fits = |ns: u128| u64::try_from(ns).ok().filter(|&ns| ns <= LONGEST_NS);
        let per_ns = fits(per.as_nanos()).ok_or_else(|| wrong(What::LongPeriod))?;
        // Neither can overflow: 64 bits and 55. A whole number of nanoseconds for each token, so
        // that a burst is as much in parts as at once; where that would slow the rate by more than
        // a ten-thousandth, a whole number for all of them, and each take is rounded up.
        let (burst_wide, per_wide) = (u128::from(burst), u128::from(per_ns));
        let is_slow = per_ns / amount >= TOKEN_NS_MIN;
        let token_ns = if is_slow { per_ns.div_ceil(amount) } else { 0 };
        let refill_ns = if is_slow {
            burst_wide * u128::from(token_ns)
        } else {
            (burst_wide * per_wide).div_ceil(u128::from(amount))
        };
        let refill_ns = fits(refill_ns).ok_or_else(|| wrong(What::LargeBurst))?;
        // Rounded up to whole nanoseconds, a shorter refill would miss the rate by more than a
        // thousandth.
        if refill_ns < 1000 {
            return Err(wrong(What::SmallBurst));
        }
        Ok(Terms { amount, per_ns, burst, refill_ns, token_ns })
    }
}

/// Writes `100 per 1s, burst 20`, or `nothing`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Rate::NOTHING {
            return f.write_str("nothing");
        }
        write!(f, "{} per {:?}, burst {}", self.amount, self.per, self.burst)
    }
}

impl From<Terms> for Rate {
    fn from(terms: Terms) -> Rate {
        let Terms { amount, per_ns, burst, .. } = terms;
        Rate { amount, per: Duration::from_nanos(per_ns), burst }
    }
}

/// The error of a [`Rate`] that no bucket can keep. Its text names the rate and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRateError {
    rate: Rate,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Amount,
    Period,
    Burst,
    LongPeriod,
    LargeBurst,
    SmallBurst,
}

impl fmt::Display for InvalidRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid rate {}: ", self.rate)?;
        f.write_str(match self.what {
            What::Amount => "the amount is 0, which would grant nothing: set a limit of 0 instead",
            What::Period => "the period is 0: use a time such as a second",
            What::Burst => "the burst is 0, which would grant nothing: use at least 1",
            What::LongPeriod => {
                "the period is longer than a year: use a smaller amount per shorter time"
            }
            What::LargeBurst => "the burst takes longer than a year to earn: lower it",
            What::SmallBurst => "the burst is earned in less than a microsecond: raise it",
        })
    }
}

impl std::error::Error for InvalidRateError {}

/// The possible weights, those of a cgroup's `cpu.weight`.
pub const WEIGHTS: RangeInclusive<u32> = 1..=10_000;

/// The error of a weight that is not one of [`WEIGHTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidWeightError(u32);

impl InvalidWeightError {
    /// Returns the weight if it is one of [`WEIGHTS`].
    ///
    /// # Errors
    /// When it is not.
    pub fn check(weight: u32) -> Result<u32, InvalidWeightError> {
        if WEIGHTS.contains(&weight) { Ok(weight) } else { Err(InvalidWeightError(weight)) }
    }
}

impl fmt::Display for InvalidWeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
        write!(f, "weight {} is out of range: use {least} to {most}", self.0)
    }
}

impl std::error::Error for InvalidWeightError {}
