//! The words that a counter keeps for each CPU beside its count.

/// The words of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuWord {
    /// Overflows: multiples of the batch.
    Posted,
    /// How many adds in flight began here.
    Begun,
    /// How many ended here.
    Ended,
}

impl CpuWord {
    #[cfg(not(loom))]
    pub(crate) const COUNT: usize = 3;
}

/// Words that each CPU writes by sequence, and every thread loads.
pub(crate) trait CpuWords {
    /// Adds to the running CPU's word. Returns whether it was done; it is tried once.
    fn add(&self, kept: CpuWord, n: i64) -> bool;

    /// Sums the words of all CPUs.
    ///
    /// # Ordering
    /// Before whatever the caller loads next.
    fn sum(&self, kept: CpuWord) -> i64;
}
