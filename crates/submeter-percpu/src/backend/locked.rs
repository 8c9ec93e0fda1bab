//! Adds by locked instructions, spread over rows so that CPUs rarely contend.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_sys::{ResolvedHint, RowHint, STRIDE};

use crate::storage::layout::{LINE_WORDS, MARKS_AT};
use crate::storage::mapping::Mapping;

/// Chooses the row for the calling thread, below `rows`. Never makes a system call.
#[inline]
pub(crate) fn row(hint: ResolvedHint, rows: usize) -> usize {
    let number = hint.number().unwrap_or_else(submeter_sys::thread_number);
    let number = number as usize;
    // Not just the remainder: a division costs as much as the add that follows.
    if number < rows { number } else { number % rows }
}

/// Adds to a word of a locked row unless `overflow` finds that this crosses a boundary of the batch
/// `mask + 1`. Returns whether it was done; may fail spuriously.
#[inline(always)]
pub(crate) fn add_within(
    word: &AtomicI64,
    n: i64,
    mask: u64,
    overflow: impl Fn(i64, i64, u64) -> i64,
) -> bool {
    // SeqCst: like every load of a word that an exchange follows.
    let before = word.load(Ordering::SeqCst);
    if overflow(before, n, mask) != 0 {
        return false;
    }
    // One attempt: an add that fails was overtaken, and may as well take the other path. SeqCst:
    // the "store" of "store, then look"; see `dirty`.
    let after = before.wrapping_add(n);
    word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// The locked rows as kept by a block: everything that a locked add needs, without following a
/// pointer.
#[derive(Clone, Copy)]
pub(crate) struct LockedRows {
    /// The start of the first of them.
    pub(crate) base: NonNull<u8>,
    /// Number of words in the block.
    pub(crate) words: u32,
    pub(crate) rows: u16,
    /// The hint to the calling thread's row.
    pub(crate) hint: RowHint,
}

/// A word of the calling thread's locked row.
#[derive(Clone, Copy)]
pub(crate) struct LockedHere<'a> {
    /// The row, counted from the first locked one.
    pub(crate) row: usize,
    pub(crate) word: &'a AtomicI64,
    /// The word of dirty bits that has the bit of this word's line.
    pub(crate) marks: &'a AtomicU64,
    /// The line; its dirty bit is bit `line % 64`.
    pub(crate) line: usize,
}

// SAFETY: 1. The address is dereferenced only in an unsafe function, whose callers answer for it,
// and only through atomics.
unsafe impl Send for LockedRows {}
// SAFETY: 1. As for `Send`; it has no interior.
unsafe impl Sync for LockedRows {}

impl LockedRows {
    /// Returns a word of the calling thread's row, if one load yields its number. Rare cases (the
    /// first add of a thread, more CPUs than rows) call functions; inlined, they would make every
    /// add save registers.
    ///
    /// # Safety
    /// 1. These are the rows of an area that has them from `base` on. 2. `word` is open there.
    ///    3. Those rows live for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn here<'a>(&self, word: u32) -> Option<LockedHere<'a>> {
        let row = self.hint.number().filter(|&row| row < self.rows.into())? as usize;
        let line = word as usize / LINE_WORDS;
        // SAFETY: 1. In bounds, and open, like the bits of an open line: `row` is below the number
        // of rows, and the caller's first and second promise. 2. Aligned and initialised: as in
        // `Rows::at`, 2 and 3, and `Rows::dirty_bits`, 2 and 3. 3. Locked rows and dirty bits are
        // accessed atomically only, by this file and `storage::raw`. 4. Alive: the third promise.
        unsafe {
            let start = self.base.add(row * STRIDE);
            let word = AtomicI64::from_ptr(start.add(word as usize * 8).cast().as_ptr());
            let marks = AtomicU64::from_ptr(start.add(MARKS_AT + line / 64 * 8).cast().as_ptr());
            Some(LockedHere { row, word, marks, line })
        }
    }
}

/// A word of which every locked row has a copy, reached without further pointers. It keeps the
/// rows.
#[derive(Debug)]
pub(crate) struct LockedWord {
    /// The address in the first locked row.
    ///
    /// Invariant: open in `rows` rows from there on, which `_keeper` keeps.
    pub(crate) base: NonNull<u8>,
    pub(crate) rows: usize,
    /// Costs a count at creation, and makes [`at`](LockedWord::at) true for every caller.
    pub(crate) _keeper: Arc<Mapping>,
}

// SAFETY: 1. The address is dereferenced only through atomics. 2. The keeper is `Send` and `Sync`.
unsafe impl Send for LockedWord {}
// SAFETY: 1 and 2 as for `Send`.
unsafe impl Sync for LockedWord {}

impl LockedWord {
    #[inline(always)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the word in a row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> &AtomicI64 {
        assert!(row < self.rows, "no such row");
        // SAFETY: 1. In bounds, and open: the row was checked, the word is by invariant. 2.
        // Aligned and initialised: as in `Rows::at`, 2 and 3. 3. Locked rows are accessed
        // atomically only, by this file and `storage::raw`. 4. The result borrows `self`, which
        // keeps the reservation.
        unsafe { AtomicI64::from_ptr(self.base.add(row * STRIDE).cast().as_ptr()) }
    }
}
