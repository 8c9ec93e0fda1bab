//! Adds by restartable sequence.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use submeter_sys::{Added, Exit, Rseq, STRIDE_SHIFT};

use crate::storage::raw::{CpuPlace, CpuWord};

/// Attempts before a sequence is given up for a locked add. Two in a row fail about once in a
/// million adds (a preemption in each, of some nanoseconds); a debugger that single-steps fails them all.
pub(crate) const ATTEMPTS: u32 = 16;

/// Adds `n`, and returns the word after.
#[inline(always)]
pub(crate) fn add_carry(rseq: Rseq, word: CpuPlace, n: i64) -> Added {
    // SAFETY: 1. `CpuPlace` is valid in every CPU row, of which an area has `rseq.cpus()`. 2. Rust
    // code only loads words of CPU rows, but for `Rows::zero`, which excludes sequences.
    unsafe { rseq.add_carry(word.address(), n) }
}

/// As [`add_carry`], while the line is marked.
#[inline(always)]
pub(crate) fn add_marked(rseq: Rseq, word: CpuPlace, n: i64) -> Added {
    // SAFETY: as in `add_carry`; the marks are valid in the same rows.
    unsafe { rseq.add_marked(word.address(), n, word.marks(), word.line()) }
}

/// Adds 1. Returns whether it was done.
#[inline(always)]
pub(crate) fn increment(rseq: Rseq, word: CpuPlace) -> bool {
    // SAFETY: as in `add_carry`.
    unsafe { rseq.increment(word.address()) }
}

/// Adds `n`. Returns whether it was done.
#[inline(always)]
pub(crate) fn add(rseq: Rseq, word: CpuPlace, n: i64) -> bool {
    // SAFETY: as in `add_carry`.
    unsafe { rseq.add(word.address(), n) }
}

/// Adds `n` unless that leaves the batch `mask + 1`. Returns whether it was done.
#[inline(always)]
pub(crate) fn add_within(rseq: Rseq, word: CpuPlace, n: i64, mask: u64) -> bool {
    // SAFETY: as in `add_carry`.
    unsafe { rseq.add_within(word.address(), n, mask) }
}

/// As [`add_within`], while the line is marked.
#[inline(always)]
pub(crate) fn add_marked_within(rseq: Rseq, word: CpuPlace, n: i64, mask: u64) -> bool {
    // SAFETY: as in `add_marked`.
    unsafe { rseq.add_marked_within(word.address(), n, mask, word.marks(), word.line()) }
}

/// Runs `sequence` again until it commits or will not. `before_retry` gets the reason, and says
/// whether to go on.
#[cold]
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

/// Opens and closes a [`GatedWord`]: what its sequences test in the section that commits.
///
/// Law: holds 0, or the number of CPU rows of the area whose words it gates. Writer: whoever holds the lock of the
/// reference count that it belongs to.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    pub(crate) const fn closed() -> Gate {
        Gate(AtomicU32::new(0))
    }

    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: a hint to everybody but the lock's holder, who is ordered by the lock.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Lets sequences commit that start from now on.
    pub(crate) fn open(&self, word: GatedWord) {
        // Release: a sequence that finds it open, and so whoever is handed what that sequence counted, comes
        // after what was written before (the count's bias).
        self.0.store(word.rseq.cpus(), Ordering::Release);
    }

    /// Lets no sequence commit that starts after the barrier which the caller issues next.
    pub(crate) fn close(&self) {
        // Relaxed: the barrier orders it.
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A word of every CPU row that takes adds while its [`Gate`] is open. Copied into whatever adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedWord {
    rseq: Rseq,
    /// In row 0. Dangling where `rseq` is inert.
    address: *mut i64,
}

// SAFETY: an address; only sequences dereference it, and they are made for concurrent use.
unsafe impl Send for GatedWord {}
// SAFETY: as for `Send`; it has no interior of its own.
unsafe impl Sync for GatedWord {}

impl GatedWord {
    pub(crate) fn new(rseq: Rseq, word: CpuWord) -> GatedWord {
        GatedWord { rseq, address: word.place().address() }
    }

    /// A word that never takes an add, for areas without sequences.
    pub(crate) fn inert() -> GatedWord {
        GatedWord { rseq: Rseq::inert(), address: std::ptr::NonNull::dangling().as_ptr() }
    }

    /// Adds the constant `N`, 1 or -1, if the gate is open. Returns whether it was done.
    #[inline(always)]
    pub(crate) fn add_one<const N: i32>(self, gate: &Gate) -> bool {
        // SAFETY: 1. An open gate holds the number of rows of the area that the word is of, which its
        // reference count keeps; a closed one lets nothing commit, so that the inert word is never
        // touched. 2. Only sequences write the word, but for `Rows::zero`, which excludes them.
        // 3. The gate is a live atomic.
        unsafe { self.rseq.add_while::<N>(self.address, gate.0.as_ptr()) }
    }

    /// As [`add_one`](GatedWord::add_one), with a value.
    #[inline(always)]
    pub(crate) fn add(self, gate: &Gate, n: i64) -> bool {
        // SAFETY: as in `add_one`.
        unsafe { self.rseq.add_value_while(self.address, gate.0.as_ptr(), n) }
    }

    /// Sums the rows. 0 for an inert word, which has none.
    pub(crate) fn sum(self) -> i64 {
        let rows = 0..self.rseq.cpus() as usize;
        let load = |row: usize| {
            // SAFETY: 1. Row `row` of the word is valid, as in `add_one`. 2. The sequences' plain stores to it are single
            // instructions on an aligned word, as atomic as a relaxed store.
            let word =
                unsafe { AtomicI64::from_ptr(self.address.wrapping_byte_add(row << STRIDE_SHIFT)) };
            // Acquire: after the barrier, which the caller issued; before what it does with the sum.
            word.load(Ordering::Acquire)
        };
        rows.map(load).fold(0, i64::wrapping_add)
    }

    /// Tries again where trying may help. Returns whether the add was done.
    #[cold]
    pub(crate) fn add_again(self, gate: &Gate, n: i64) -> bool {
        for _ in 0..ATTEMPTS {
            if !gate.is_open() || !self.rseq.adopt_thread() {
                return false;
            }
            if self.add(gate, n) {
                return true;
            }
        }
        false
    }
}
