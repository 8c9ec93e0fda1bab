//! Units, carried in the type of a metric so that bytes are never added to nanoseconds.

use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// A unit of a metric: [`Count`], [`Bytes`] or [`Nanoseconds`]. Sealed, because exporters must know
/// every unit.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Unit};
///
/// fn unit_of<U: Unit>() -> &'static str {
///     U::KIND.base_name()
/// }
/// assert_eq!(unit_of::<Bytes>(), "bytes");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no unit of a metric",
    note = "units are `Count`, `Bytes` and `Nanoseconds` of `submeter::unit`; where `Bytes` means \
            `bytes::Bytes`, write `unit::Bytes`"
)]
pub trait Unit: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The unit as data, for code that handles metrics of any unit.
    const KIND: UnitKind;
}

/// A [`Unit`] as data, for code that handles metrics of any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnitKind {
    /// Plain events or things; exported without a unit.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds; exported in seconds, OpenMetrics' base unit of time.
    Nanoseconds,
}

/// Writes `count`, `bytes` or `nanoseconds`.
impl fmt::Display for UnitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            UnitKind::Count => "count",
            UnitKind::Bytes => "bytes",
            UnitKind::Nanoseconds => "nanoseconds",
        })
    }
}

impl UnitKind {
    /// Returns the base unit that OpenMetrics requires, or `""` for a plain count.
    #[must_use]
    pub const fn base_name(self) -> &'static str {
        match self {
            UnitKind::Count => "",
            UnitKind::Bytes => "bytes",
            UnitKind::Nanoseconds => "seconds",
        }
    }

    /// Returns how many of this unit make one base unit (1e9 nanoseconds per second).
    #[must_use]
    pub const fn per_base(self) -> u64 {
        match self {
            UnitKind::Count | UnitKind::Bytes => 1,
            UnitKind::Nanoseconds => 1_000_000_000,
        }
    }
}

impl UnitKind {
    /// Returns the batch of a metric of this unit, minus one: how much a CPU's word may gain before
    /// the updater raises the ancestors' error bounds. A batch is a power of two, chosen so that
    /// typical requests (one event, a few hundred bytes, a few microseconds) cross it once in about
    /// 256 to 4,096 updates. A crossing waits for lines far from its cache. With 2^10 events, the
    /// crossings of a recorded kernel build were one update in 1,050, and decided its p99.9; with
    /// 2^12 they are one in 6,700 (records `2026-11-28-batches` and `2026-12-01-tails`). A batch
    /// twice as large would double the error bound and, for time, what budgets have not been told
    /// yet. Its boundaries lie about half of it away from 0: see
    /// [`CENTRE`](submeter_sys::CENTRE).
    // Explicit, because an incremental build inlines nothing across crates that is not marked.
    #[inline]
    pub(crate) const fn batch_mask(self) -> u64 {
        match self {
            UnitKind::Count => (1 << 12) - 1,
            UnitKind::Bytes => (1 << 17) - 1,
            UnitKind::Nanoseconds => (1 << 20) - 1,
        }
    }
}

// Whichever way it is rounded, a value that goes back and forth around 0 crosses no boundary.
const _: () = {
    let kinds = [UnitKind::Count, UnitKind::Bytes, UnitKind::Nanoseconds];
    let mut n = 0;
    while n < kinds.len() {
        let batch = kinds[n].batch_mask() + 1;
        let above = submeter_sys::CENTRE as u64 % batch;
        assert!(above.abs_diff(batch / 2) <= batch / 8);
        n += 1;
    }
};

/// The mask of a batch that a word leaves only by wrapping around.
pub(crate) const NO_BATCH_MASK: u64 = i64::MAX.cast_unsigned();

/// Plain events or things.
#[derive(Clone, Copy, Debug)]
pub struct Count;

/// Bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Nanoseconds;

impl sealed::Sealed for Count {}
impl sealed::Sealed for Bytes {}
impl sealed::Sealed for Nanoseconds {}

impl Unit for Count {
    const KIND: UnitKind = UnitKind::Count;
}
impl Unit for Bytes {
    const KIND: UnitKind = UnitKind::Bytes;
}
impl Unit for Nanoseconds {
    const KIND: UnitKind = UnitKind::Nanoseconds;
}
