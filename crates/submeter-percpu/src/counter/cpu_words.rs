//! The words that a counter keeps for each CPU in addition to its count.

/// The words of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuWord {
    /// The sum of overflows, which are multiples of the batch.
    Posted,
    /// Number of adds in flight that began here.
    Begun,
    /// Number of adds in flight that ended here.
    Ended,
}

impl CpuWord {
    #[cfg(not(loom))]
    pub(crate) const COUNT: usize = 3;
}

/// Words that each CPU writes by sequence, and every thread loads.
pub(crate) trait CpuWords {
    /// Tries once to add to the running CPU's word. Returns whether it was done.
    fn add(&self, kept: CpuWord, n: i64) -> bool;

    /// Sums the words of all CPUs.
    ///
    /// # Ordering
    /// The sum is loaded before anything that the caller loads next.
    fn sum(&self, kept: CpuWord) -> i64;
}
