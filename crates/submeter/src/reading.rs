//! What a read returns: a value and how exact it is.

use std::time::Duration;

use crate::schema::{Counter, Gauge, Key};
use crate::unit::Unit;

/// Holds a value with its error bound and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading<T> {
    /// The total as of the last flush.
    pub value: T,
    /// How far the truth may be from `value`, in either direction: updates that no flush has seen. 0 when there
    /// are none.
    ///
    /// What crossed a batch boundary (512 of a count, 64 KiB, about a millisecond) since the last flush, plus less
    /// than a batch for each group and CPU that may have more: at most one for each 64-byte line that changed
    /// anywhere in the tree, and one for each update under way that may cross a boundary. (Whether an update under way is
    /// in the truth is open, for each by itself.) A flush of a part takes away its part's own drift only: above it the bound
    /// stays wider than need be until the next flush of more.
    pub bound: u64,
    /// How long ago the flush began that `value` is from, at most: the last one of the tree, or of just this
    /// group. (One of a group above counts for that group only.) Of a tree that was never flushed: how long ago it was
    /// made.
    pub age: Duration,
}

impl<T> Reading<T> {
    pub(crate) fn new(value: T, bound: u64, age: Duration) -> Self {
        Reading { value, bound, age }
    }

    pub(crate) fn map<V>(self, f: impl FnOnce(T) -> V) -> Reading<V> {
        Reading { value: f(self.value), bound: self.bound, age: self.age }
    }
}

/// Says how wrong and how old a value may be, for [`Group::read_within`](crate::Group::read_within), which has an
/// example. Anything goes unless told otherwise; where both are told, both must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    error: u64,
    age: Duration,
}

impl Tolerance {
    /// Accepts any value.
    #[must_use]
    pub const fn new() -> Tolerance {
        Tolerance { error: u64::MAX, age: Duration::MAX }
    }

    /// Accepts values that may be off by `error`, in the metric's unit. 0 asks for the truth.
    #[must_use]
    pub const fn error(self, error: u64) -> Tolerance {
        Tolerance { error, ..self }
    }

    /// Accepts values that are this old. A value that cannot be wrong has no age.
    #[must_use]
    pub const fn age(self, age: Duration) -> Tolerance {
        Tolerance { age, ..self }
    }

    pub(crate) fn accepts<T>(self, reading: &Reading<T>) -> bool {
        reading.bound == 0 || (reading.bound <= self.error && reading.age <= self.age)
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance::new()
    }
}

mod sealed {
    pub trait Sealed {}
    impl<U> Sealed for crate::Counter<U> {}
    impl<U> Sealed for crate::Gauge<U> {}
}

/// Marks the metrics that are one number: [`Counter`] (`u64`) and [`Gauge`] (`i64`).
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
