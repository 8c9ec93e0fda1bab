//! Adds by restartable sequence.

use submeter_sys::{Added, Exit, Rseq};

use crate::storage::raw::CpuWord;

/// Attempts before a sequence is given up for a locked add. Two in a row fail about once in a
/// million adds (a preemption in each, of some nanoseconds); a debugger that single-steps fails them all.
pub(crate) const ATTEMPTS: u32 = 16;

/// Adds `n`, and returns the word after with the bits that changed.
#[inline(always)]
pub(crate) fn add_carry(rseq: Rseq, word: CpuWord, n: i64) -> Added {
    // SAFETY: 1. `CpuWord` is valid in every CPU row, of which an area has `rseq.cpus()`. 2. Rust
    // code only loads words of CPU rows, but for `Rows::zero`, which excludes sequences.
    unsafe { rseq.add_carry(word.address(), n) }
}

/// As [`add_carry`], while the line is marked.
#[inline(always)]
pub(crate) fn add_marked(rseq: Rseq, word: CpuWord, n: i64) -> Added {
    // SAFETY: as in `add_carry`; the marks are valid in the same rows.
    unsafe { rseq.add_marked(word.address(), n, word.marks(), word.line()) }
}

/// Adds `n`. Returns whether it was done.
#[inline(always)]
pub(crate) fn add(rseq: Rseq, word: CpuWord, n: i64) -> bool {
    // SAFETY: as in `add_carry`.
    unsafe { rseq.add(word.address(), n) }
}

/// Runs `sequence` again until it commits or will not. `before_retry` gets the reason, and says
/// whether to go on.
pub(crate) fn retry(
    first: Added,
    mut before_retry: impl FnMut(Exit) -> bool,
    sequence: impl Fn() -> Added,
) -> Option<Added> {
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
