//! Adds by restartable sequence.

use submeter_sys::{AddOutcome, Exit};

use crate::storage::raw::CpuWord;

/// Number of attempts before a sequence is given up for a locked add. Two in a row fail about once
/// in a million adds (with a preemption in each, within some nanoseconds); a debugger that
/// single-steps makes all of them fail.
pub(crate) const ATTEMPTS: u32 = 16;

impl CpuWord<'_> {
    /// Adds `n`. Returns whether it was done.
    #[inline(always)]
    pub(crate) fn add(self, n: i64) -> bool {
        // SAFETY: 1. The word is valid in `rseq.cpus()` rows for as long as `self` lives: the
        // invariant of `CpuWord`. 2. Rust code only loads words of these rows, except for
        // `Rows::zero`, whose callers exclude sequences.
        unsafe { self.rseq().add(self.address(), n) }
    }

    /// Adds `n` unless that leaves the batch `mask + 1`. Returns whether it was done.
    #[inline(always)]
    pub(crate) fn add_within(self, n: i64, mask: u64) -> bool {
        // SAFETY: 1 and 2 as in `add`.
        unsafe { self.rseq().add_within(self.address(), n, mask) }
    }

    /// Adds `n`, and returns the resulting word.
    #[inline(always)]
    pub(crate) fn add_overflow(self, n: i64) -> AddOutcome {
        // SAFETY: 1 and 2 as in `add`.
        unsafe { self.rseq().add_carry(self.address(), n) }
    }

    /// Does the same as [`add_overflow`](Self::add_overflow), only while the line is dirty.
    #[inline(always)]
    pub(crate) fn add_dirty(self, n: i64) -> AddOutcome {
        // SAFETY: 1 and 2 as in `add`. 3. The marks are valid in the same rows, by the same
        // invariant.
        unsafe { self.rseq().add_marked(self.address(), n, self.marks(), self.line()) }
    }
}

/// Runs `sequence` again until it commits or cannot. `before_retry` gets the reason, and returns
/// whether to continue.
#[cold]
pub(crate) fn retry(
    first: AddOutcome,
    mut before_retry: impl FnMut(Exit) -> bool,
    sequence: impl Fn() -> AddOutcome,
) -> Option<AddOutcome> {
    let mut added = first;
    for _ in 0..ATTEMPTS {
        match added.exit() {
            None => return Some(added),
            Some(reason) if !before_retry(reason) => return None,
            Some(_) => added = sequence(),
        }
    }
    added.exit().is_none().then_some(added)
}
