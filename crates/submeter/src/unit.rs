//! Units, carried in the type of a metric so that bytes are never added to nanoseconds.

mod sealed {
    pub trait Sealed {}
}

/// Names what a metric counts. Sealed: the exporters must know every unit.
pub trait Unit: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The unit as data, for code that handles metrics of any unit.
    const KIND: UnitKind;
}

/// Tells the units apart at run time (exporters, schemas).
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

impl UnitKind {
    /// Returns the base unit that OpenMetrics asks for, or `""` for a plain count.
    #[must_use]
    pub const fn base_name(self) -> &'static str {
        match self {
            UnitKind::Count => "",
            UnitKind::Bytes => "bytes",
            UnitKind::Nanoseconds => "seconds",
        }
    }

    /// Returns how many of this unit make one base unit (1e9 nanoseconds a second).
    #[must_use]
    pub const fn per_base(self) -> u64 {
        match self {
            UnitKind::Count | UnitKind::Bytes => 1,
            UnitKind::Nanoseconds => 1_000_000_000,
        }
    }
}

impl UnitKind {
    /// The batch of a metric of this unit, less one: how much a CPU's word may gain before the updater
    /// tells the ancestors that their cached total is off. A power of two, chosen so that a typical
    /// request (one event, some hundred bytes, some microseconds) crosses it once in some 128 to
    /// 512 updates: a crossing costs as much as fifty updates, a batch twice as large bounds half as well.
    pub(crate) const fn batch_mask(self) -> u64 {
        match self {
            UnitKind::Count => (1 << 9) - 1,
            UnitKind::Bytes => (1 << 16) - 1,
            UnitKind::Nanoseconds => (1 << 20) - 1,
        }
    }
}

/// A batch that no word leaves but by wrapping around.
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
