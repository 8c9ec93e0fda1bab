//! Conversion between a counter's ticks and nanoseconds.

/// Converts ticks to nanoseconds by one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Nanoseconds per tick, times 2^32.
    pub(crate) factor: u64,
}

impl Rate {
    /// Converts fewer than 2^32 ticks to nanoseconds.
    #[inline(always)]
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        (ticks.wrapping_mul(self.factor)) >> 32
    }

    /// Converts any number of ticks to nanoseconds.
    #[inline(always)]
    pub(crate) fn wide_ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.factor)) >> 32) as u64
    }

    /// Converts a short time to ticks.
    pub(crate) fn ticks(self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.factor.max(1))) as u64
    }
}
