//! Ticks of a counter and nanoseconds.

/// How ticks become nanoseconds: by one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Nanoseconds per tick, times 2^32.
    pub(crate) factor: u64,
}

impl Rate {
    /// Makes nanoseconds of fewer than 2^32 ticks.
    #[inline(always)]
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        (ticks.wrapping_mul(self.factor)) >> 32
    }

    /// Makes nanoseconds of any number of ticks.
    #[inline(always)]
    pub(crate) fn wide_ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.factor)) >> 32) as u64
    }

    /// Makes ticks of a short time.
    pub(crate) fn ticks(self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.factor.max(1))) as u64
    }
}
