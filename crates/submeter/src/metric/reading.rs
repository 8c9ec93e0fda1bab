//! The result of a read: a value with its error bound.

use std::fmt;
use std::time::Duration;

use crate::metric::schema::{Counter, Gauge, Key};
use crate::metric::unit::Unit;

/// A value with its error bound and its age.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().add(requests, 7);
///
/// let reading = tree.root().read(requests);
/// assert!(reading.value + reading.max_error >= 7);
/// println!("{reading} requests, {:?} ago", reading.age); // 0 ± 4095 requests, 1.2µs ago
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading<T> {
    /// The total as of the last flush.
    pub value: T,
    /// The most that the exact total may differ from `value`, in either direction, because of
    /// updates that no flush has seen. 0 if there are none.
    ///
    /// It is the sum of the batches completed since the last flush (1,024 of a count, 128 KiB,
    /// about a millisecond), plus less than a batch for each group and CPU that may have more: at
    /// most one for each 64-byte line that changed anywhere in the tree, and one for each update in
    /// progress that may cross a boundary. The exact total may or may not include an update in
    /// progress. A flush of a subtree lowers only the bounds in that subtree: those of its
    /// ancestors stay wider than necessary until the next larger flush.
    ///
    /// `u64::MAX` if nothing is known, which is the case once 2^31 batches were completed since the
    /// last flush: 2^41 of a count, 2^48 bytes or 26 days of CPU time.
    pub max_error: u64,
    /// Upper bound on the time since the flush that produced `value` began: the last flush of the
    /// tree, or of exactly this group. (A flush of an ancestor counts only for that ancestor.)
    /// Before the first flush, the age of the tree.
    pub age: Duration,
}

impl<T> Reading<T> {
    pub(crate) fn map<V>(self, f: impl FnOnce(T) -> V) -> Reading<V> {
        Reading { value: f(self.value), max_error: self.max_error, age: self.age }
    }
}

/// Writes `7` if exact, `7 ± 4095` if not; displaying the age is left to the caller.
impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_error {
            0 => self.value.fmt(f),
            u64::MAX => write!(f, "{} ± unknown", self.value),
            bound => write!(f, "{} ± {bound}", self.value),
        }
    }
}

/// The error and age that a reader accepts, for [`Group::read_within`](crate::Group::read_within).
///
/// Both limits must hold, unless the value is exact: its age does not matter.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::Tolerance;
///
/// // At most ten thousand off, and at most a minute old.
/// let loose = Tolerance::max_error(10_000).max_age(Duration::from_secs(60));
/// // Any error, but not older than a second.
/// let young = Tolerance::ANY.max_age(Duration::from_secs(1));
/// assert!(loose != young && young != Tolerance::EXACT);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tolerance {
    error: u64,
    age: Duration,
}

impl Tolerance {
    /// Accepts only exact values: flushes if there is any unseen update.
    pub const EXACT: Tolerance = Tolerance { error: 0, age: Duration::ZERO };

    /// Accepts any value: never flushes. The starting point for an [age limit](Tolerance::max_age)
    /// alone.
    pub const ANY: Tolerance = Tolerance { error: u64::MAX, age: Duration::MAX };

    /// Accepts values of any age that may be off by at most `error`, in the metric's unit.
    ///
    /// Each line of words that holds unseen updates makes the bound wider by up to a batch: 4,095
    /// of a count, 128 KiB, or a millisecond of time. A smaller `error` flushes for any of them.
    #[must_use]
    pub const fn max_error(error: u64) -> Tolerance {
        Tolerance { error, ..Tolerance::ANY }
    }

    /// Also limits the age of accepted values to `age`.
    #[must_use]
    pub const fn max_age(self, age: Duration) -> Tolerance {
        Tolerance { age, ..self }
    }

    pub(crate) fn accepts<T>(self, reading: &Reading<T>) -> bool {
        reading.max_error == 0 || (reading.max_error <= self.error && reading.age <= self.age)
    }
}

mod sealed {
    pub trait Sealed {}
    impl<U> Sealed for crate::Counter<U> {}
    impl<U> Sealed for crate::Gauge<U> {}
}

/// The metrics that are one number: [`Counter`] (`u64`) and [`Gauge`] (`i64`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a single number: this method is for counters and gauges",
    note = "a quota has `usage`, `try_charge` and `charge`; a histogram `record`, `sum_histogram` \
            and `read_histogram`; a rate `try_take`, `take` and `spend`"
)]
pub trait Scalar: sealed::Sealed + Copy {
    /// The number's type.
    type Value;

    #[doc(hidden)]
    const BATCH_MASK: u64;

    #[doc(hidden)]
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn key(self) -> Key;

    #[doc(hidden)]
    fn value(word: i64) -> Self::Value;
}

impl<U: Unit> Scalar for Counter<U> {
    type Value = u64;
    const BATCH_MASK: u64 = U::KIND.batch_mask();

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn key(self) -> Key {
        self.key
    }

    fn value(word: i64) -> u64 {
        word.cast_unsigned()
    }
}

impl<U: Unit> Scalar for Gauge<U> {
    type Value = i64;
    const BATCH_MASK: u64 = U::KIND.batch_mask();

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn key(self) -> Key {
        self.key
    }

    fn value(word: i64) -> i64 {
        word
    }
}
