//! The rows themselves: only addresses are unsafe here.
//!
//! ```text
//! row 0            row 1            ...  row cpus           ...  row cpus+locked    ...
//! | words | marks ||| words | marks |||  | words | marks |||     | words | marks ||| | words |
//! \--- written by sequences, a row each -----/\- locked adds -/  \- shared, atomic -/ \- owned -/
//! <---- STRIDE --->
//! ```

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_sys::memory::page_size;
use submeter_sys::{CpuRows, RowHint, Rseq, STRIDE};

use super::layout::{LINE_WORDS, LINES, LINKING_AT, MARKS_AT, SUMMARY_AT, WORDS, whole_pages};
use super::mapping::Mapping;
use crate::backend::locked::{LockedRows, LockedWord};
use crate::dirty::DirtyBits;

/// Reserved rows. They are all zero at first; a page takes memory from its first write on.
///
/// The rows of CPUs come first, one for each CPU on which the sequences can run; only sequences
/// write them. Then come locked rows, which only locked instructions write, and then shared ones,
/// which the area's owner writes atomically.
#[derive(Debug)]
pub(crate) struct Rows {
    mapping: Arc<Mapping>,
    /// `None` where there are no rows of CPUs.
    rseq: Option<Rseq>,
    locked: usize,
    shared: usize,
}

impl Rows {
    /// Reserves rows, all zero, and `owned` rows for one exclusive owner. Lines must be
    /// [opened](Rows::open) before they are used.
    pub(crate) fn new(
        rseq: Option<Rseq>,
        locked: usize,
        shared: usize,
        owned: usize,
    ) -> io::Result<(Rows, OwnedRows)> {
        // Checked: the owner chooses how many are shared and owned, and every later bound is this
        // sum.
        let cpus = rseq.map_or(0, |rseq| rseq.cpus() as usize);
        let atomic = cpus.checked_add(locked).and_then(|rows| rows.checked_add(shared));
        let mapping = Arc::new(Mapping::new(atomic.ok_or(io::ErrorKind::OutOfMemory)?, owned)?);
        let rows = Rows { mapping, rseq, locked, shared };
        // Wrapping: not dereferenced where there are none; otherwise in bounds.
        let first = rows.atomic();
        let base = rows.mapping.reservation.base().as_ptr().wrapping_add(first * STRIDE);
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let keeper = Arc::clone(&rows.mapping);
        Ok((rows, OwnedRows { base, first, rows: owned, keeper }))
    }

    pub(crate) fn rseq(&self) -> Option<Rseq> {
        self.rseq
    }

    /// Opens at least the first `lines` lines of each row: see [`Mapping::open`].
    ///
    /// # Panics
    /// When a row does not have that many lines.
    pub(crate) fn open(&self, lines: usize) -> io::Result<()> {
        self.mapping.open(lines)
    }

    /// Returns the number of rows that only sequences write.
    #[inline]
    pub(crate) fn cpus(&self) -> usize {
        self.rseq.map_or(0, |rseq| rseq.cpus() as usize)
    }

    /// Returns the number of rows that only locked instructions write.
    #[inline]
    pub(crate) fn locked_rows(&self) -> usize {
        self.locked
    }

    /// Returns the number of rows that hold data: those of CPUs, then locked ones.
    #[inline]
    pub(crate) fn data_rows(&self) -> usize {
        self.cpus() + self.locked
    }

    /// Returns the number of a shared row among all rows.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub(crate) fn shared_row(&self, row: usize) -> usize {
        assert!(row < self.shared, "no such row");
        self.data_rows() + row
    }

    /// Returns the number of rows that are accessed atomically.
    #[inline]
    fn atomic(&self) -> usize {
        self.data_rows() + self.shared
    }

    /// Returns the data rows, for many loads.
    pub(crate) fn data(&self) -> DataRows<'_> {
        let (base, lines) = (self.mapping.reservation.base(), self.open_lines());
        DataRows { base, rows: self.data_rows(), lines, _rows: PhantomData }
    }

    /// Returns the lines of a shared row that are open now: all that were handed out before.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn shared_lines(&self, row: usize) -> &[[AtomicI64; LINE_WORDS]] {
        let row = self.shared_row(row);
        // SAFETY: 1. In bounds: `shared_row` checked the row, which has `STRIDE` bytes, more than
        // its lines; and open, as many as are taken. 2. Aligned and initialised: as in `at`, 2 and
        // 3; an array of atomics has the layout of its words. 3. Shared rows are accessed
        // atomically only, by this file. 4. The result borrows `self`, which keeps the reservation.
        unsafe {
            let first = self.row(row).cast::<[AtomicI64; LINE_WORDS]>();
            std::slice::from_raw_parts(first.as_ptr(), self.open_lines())
        }
    }

    /// Returns the rows of CPUs, where there are any, for sequences.
    pub(crate) fn cpu_rows(&self) -> Option<CpuRows> {
        let base = self.mapping.reservation.base();
        self.rseq.as_ref().map(|rseq| CpuRows::new(base, rseq.split()))
    }

    /// Returns the index of the word at an address in row 0.
    pub(super) fn index(&self, address: *const i64) -> usize {
        (address.addr() - self.mapping.reservation.base().addr().get()) / size_of::<i64>()
    }

    /// Returns how many lines of each row are open.
    #[inline(always)]
    pub(crate) fn open_lines(&self) -> usize {
        self.mapping.open_lines()
    }

    /// Returns whether all words below `end` are open.
    #[inline(always)]
    pub(crate) fn is_open(&self, end: usize) -> bool {
        end <= self.open_lines() * LINE_WORDS
    }

    /// Returns a word of the rows of CPUs, where there are any.
    ///
    /// # Panics
    /// When the word does not exist, or is not open.
    #[inline]
    pub(crate) fn cpu_word(&self, word: usize) -> Option<CpuWord<'_>> {
        assert!(word < WORDS && self.is_open(word + 1), "no such word");
        // SAFETY: 1. The base is this reservation's, which has `rseq.cpus()` rows from there on:
        // `new` made them. 2. The word was checked to be open. 3. The result borrows `self`, which
        // keeps the reservation.
        self.cpu_rows().map(|rows| unsafe { CpuWord::new(&rows, word as u32) })
    }

    /// Returns the same as [`cpu_word`](Rows::cpu_word); where there are no rows of CPUs, a word to
    /// which no sequence adds.
    ///
    /// # Panics
    /// When the word does not exist, or is not open.
    pub(crate) fn cpu_word_or_inert(&self, word: usize) -> CpuWord<'_> {
        assert!(word < WORDS && self.is_open(word + 1), "no such word");
        let rseq = self.rseq.unwrap_or_else(Rseq::inert);
        let rows = CpuRows::new(self.mapping.reservation.base(), rseq);
        // SAFETY: 1. The base is this reservation's, which has `rseq.cpus()` rows from there on, or
        // none for an inert `rseq`, and at least one row. 2 and 3 as in `cpu_word`.
        unsafe { CpuWord::new(&rows, word as u32) }
    }

    /// Returns a word in a row, as an atomic. Words of CPU rows may only be loaded through it.
    ///
    /// # Panics
    /// When row or word does not exist, or is not open.
    #[inline]
    fn at(&self, row: usize, word: usize) -> &AtomicI64 {
        assert!(word < WORDS && self.is_open(word + 1) && row < self.atomic(), "no such word");
        // SAFETY: 1. In bounds, and open: `row` and `word` were checked. 2. Aligned to 8: the base
        // is page-aligned, strides and words are multiples of 8. 3. Initialised: mappings start
        // zeroed. 4. Every concurrent access is atomic, except for the sequences' plain stores to
        // CPU rows: single instructions on aligned words, which the hardware makes as atomic as a
        // relaxed store. 5. The result borrows `self`, which keeps the reservation.
        unsafe { AtomicI64::from_ptr(self.row(row).add(word * 8).cast().as_ptr()) }
    }

    /// Loads a word of any row.
    #[inline]
    pub(crate) fn load(&self, row: usize, word: usize, order: Ordering) -> i64 {
        self.at(row, word).load(order)
    }

    /// Sums a word over the first `rows` rows. Checks once that they exist: a check for each load
    /// would cost as much as the load.
    ///
    /// # Panics
    /// When row or word does not exist, or is not open.
    pub(crate) fn sum(&self, rows: usize, word: usize, order: Ordering) -> i64 {
        assert!(word < WORDS && self.is_open(word + 1) && rows <= self.atomic(), "no such word");
        // SAFETY: 1. In bounds, and open: the word was checked, and `new` reserved at least one
        // row.
        let first = unsafe { self.mapping.reservation.base().add(word * 8) };
        let load = |row: usize| {
            // SAFETY: 1 to 5 as in `at`, of a row below the number that was checked.
            unsafe { AtomicI64::from_ptr(first.add(row * STRIDE).cast().as_ptr()) }.load(order)
        };
        (0..rows).map(load).fold(0, i64::wrapping_add)
    }

    /// Returns a word of a locked row, counted from 0.
    ///
    /// # Panics
    /// When row or word does not exist.
    #[inline]
    pub(crate) fn locked(&self, row: usize, word: usize) -> &AtomicI64 {
        assert!(row < self.locked, "no such row");
        self.at(self.cpus() + row, word)
    }

    /// Returns the locked rows, for a block of `words` words and threads that find their row by
    /// `hint`.
    pub(super) fn locked_by(&self, hint: RowHint, words: u32) -> LockedRows {
        assert!(self.locked > 0, "an area has a locked row");
        let rows = u16::try_from(self.locked).expect("64 at most, or a simulated machine");
        LockedRows { base: self.row(self.cpus()), words, rows, hint }
    }

    /// Returns a word of every locked row, without the pointers to it.
    ///
    /// # Panics
    /// When the word does not exist.
    pub(crate) fn locked_word(&self, word: usize) -> LockedWord {
        assert!(word < WORDS && self.is_open(word + 1) && self.locked > 0, "no such word");
        // SAFETY: 1. In bounds: there is a locked row, and the word is one of its `WORDS`; both
        // were checked.
        let base = unsafe { self.row(self.cpus()).add(word * 8) };
        LockedWord { base, rows: self.locked, _keeper: Arc::clone(&self.mapping) }
    }

    /// Returns a word of a shared row, counted from 0.
    ///
    /// # Panics
    /// When row or word does not exist.
    #[inline]
    pub(crate) fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.at(self.shared_row(row), word)
    }

    /// Returns the dirty bits of a data row's lines that are open now, with the tally that counts
    /// them.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub(crate) fn dirty_bits<'a>(&'a self, row: usize, tally: &'a AtomicU64) -> DirtyBits<'a> {
        assert!(row < self.data_rows(), "no such row");
        let (base, open) = (self.row(row), self.mapping.open_lines());
        // SAFETY: 1. In bounds: the row was checked, and the three parts lie inside it (the
        // constants assert that), separate from its words. The bits are open as far as the lines
        // are (`open`), the rest from the start (`open_states`). 2. Aligned to 8: `MARKS_AT` is a
        // multiple of 64, and each part a multiple of 8. 3. Initialised: mappings start zeroed.
        // 4. Every access is atomic: this file hands out only atomics, and the sequences' loads are
        // single aligned loads. 5. The result borrows `self`, which keeps the reservation.
        unsafe {
            DirtyBits {
                lines: std::slice::from_raw_parts(
                    base.add(MARKS_AT).cast::<AtomicU64>().as_ptr(),
                    open.div_ceil(64),
                ),
                summary: std::slice::from_raw_parts(
                    base.add(SUMMARY_AT).cast::<AtomicU64>().as_ptr(),
                    open.div_ceil(64 * 64),
                ),
                linking: base.add(LINKING_AT).cast::<AtomicU64>().as_ref(),
                tally,
            }
        }
    }

    /// Zeroes words in every row that is accessed atomically, for their next user.
    ///
    /// Only for words to which no thread can add: a concurrent sequence would bring the old value
    /// back. The next user must learn of the words through a lock or the like.
    pub(crate) fn zero(&self, words: Range<usize>) {
        // Row by row: each is on a different page.
        for row in 0..self.atomic() {
            for word in words.clone() {
                let word = self.at(row, word);
                // Relaxed: the caller synchronises. Loaded first, since a store would commit an
                // untouched page.
                if word.load(Ordering::Relaxed) != 0 {
                    // Relaxed: the caller synchronises.
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Gives back the memory of whole pages of words, in every row that is accessed atomically;
    /// they then read as zero. The same rules as for [`zero`](Rows::zero) apply, and everything
    /// there must already be zero or be irrelevant.
    ///
    /// # Panics
    /// When there are no such lines.
    pub(crate) fn discard(&self, lines: Range<usize>) -> io::Result<()> {
        assert!(lines.start <= lines.end && lines.end <= LINES, "no such lines");
        for row in 0..self.atomic() {
            let pages = whole_pages(row, &lines, page_size());
            // SAFETY: 1. Words are accessed atomically, or by the sequences' single stores (`at`,
            // 4), so a word that becomes zero is no data race. 2. The caller knows that no count
            // relies on them; a caller that is wrong loses counts, but not memory safety.
            unsafe { self.mapping.reservation.discard(pages.start, pages.len()) }?;
        }
        Ok(())
    }

    #[inline]
    fn row(&self, row: usize) -> NonNull<u8> {
        debug_assert!(row < self.atomic());
        // SAFETY: 1. In bounds: every caller in this file has checked that `row` is below `atomic`,
        // and `new` reserved `STRIDE` bytes for each row.
        unsafe { self.mapping.reservation.base().add(row * STRIDE) }
    }
}

/// A word of which every CPU's row has a copy, in the form that sequences use. Valid for as long as
/// its rows are borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuWord<'a> {
    rseq: Rseq,
    /// The address in row 0. Invariant, also for `marks`: valid and open in rows `0..rseq.cpus()`
    /// for `'a`.
    address: NonNull<i64>,
    marks: NonNull<u64>,
    line: u32,
    _rows: PhantomData<&'a Rows>,
}

// SAFETY: 1. The addresses are dereferenced only by sequences, which are made for concurrent use.
// 2. The rows to which they point are `Sync`.
unsafe impl Send for CpuWord<'_> {}
// SAFETY: 1 and 2 as for `Send`; it has no interior of its own.
unsafe impl Sync for CpuWord<'_> {}

impl CpuWord<'_> {
    /// # Safety
    /// 1. `rows` start with at least one row and at least `rows.rseq().cpus()` rows; sequences
    ///    write the latter. 2. `word` is open there. 3. Those rows live for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new<'a>(rows: &CpuRows, word: u32) -> CpuWord<'a> {
        debug_assert!((word as usize) < WORDS);
        let (rseq, base) = (rows.rseq(), rows.base());
        let line = word / LINE_WORDS as u32;
        let marks = MARKS_AT + line as usize / 64 * 8;
        // SAFETY: 1. Both lie in row 0, which starts at `base`; the bits of an open line are open
        // too: the caller's first and second promise. 2. Row 0 is mapped: the third promise.
        let at = |offset: usize| unsafe { base.add(offset) };
        let (address, marks) = (at(word as usize * 8).cast(), at(marks).cast());
        CpuWord { rseq, address, marks, line, _rows: PhantomData }
    }

    /// Returns the same word with a lifetime chosen by the caller, which keeps the rows.
    ///
    /// # Safety
    /// 1. The rows live for as long as the result is used.
    pub(crate) unsafe fn unbound<'b>(self) -> CpuWord<'b> {
        let CpuWord { rseq, address, marks, line, _rows } = self;
        CpuWord { rseq, address, marks, line, _rows: PhantomData }
    }

    /// Returns a copy, made field by field: see [`Rseq::split`].
    #[inline(always)]
    pub(crate) fn split(&self) -> Self {
        let &CpuWord { ref rseq, address, marks, line, _rows } = self;
        CpuWord { rseq: rseq.split(), address, marks, line, _rows }
    }

    #[inline(always)]
    pub(crate) fn rseq(self) -> Rseq {
        self.rseq
    }

    #[inline(always)]
    pub(crate) fn address(self) -> *mut i64 {
        self.address.as_ptr()
    }

    /// Returns the word of dirty bits that has the bit of this word's line.
    #[inline(always)]
    pub(crate) fn marks(self) -> *const u64 {
        self.marks.as_ptr()
    }

    /// Returns the line; its dirty bit is bit `line % 64`.
    #[inline(always)]
    pub(crate) fn line(self) -> u32 {
        self.line
    }
}

/// The rows of an [`Area`](super::Area) that belong exclusively to one owner, for its data about
/// the other rows. They are not zeroed with a block: the owner resets them itself.
///
/// One exists for each reservation. No other handle of the reservation reaches these rows.
#[derive(Debug)]
pub struct OwnedRows {
    /// The first owned row.
    base: NonNull<u8>,
    /// Its number among all rows.
    first: usize,
    rows: usize,
    keeper: Arc<Mapping>,
}

// SAFETY: 1. Its words are reached only as atomics (`OwnedLines::line`).
unsafe impl Send for OwnedRows {}
// SAFETY: 1. As for `Send`; it has no interior of its own.
unsafe impl Sync for OwnedRows {}

impl OwnedRows {
    /// Returns the lines that have been handed out in blocks so far, for many loads and stores.
    /// Costs one load.
    #[inline]
    #[must_use]
    pub fn lines(&self) -> OwnedLines<'_> {
        let (base, rows, lines) = (self.base, self.rows, self.keeper.open_lines());
        OwnedLines { base, rows, lines, _rows: PhantomData }
    }

    /// Gives back the memory of whole pages of these lines, which then read as zero; other lines
    /// stay as they are. For lines that are no longer needed; costs a system call for each row.
    ///
    /// # Errors
    /// The error that the system returns, or `Unsupported` where memory cannot be given back in
    /// parts (Windows, Miri). The memory then stays committed, which is harmless.
    ///
    /// # Panics
    /// When there are no such lines.
    pub fn discard(&self, lines: Range<usize>) -> io::Result<()> {
        assert!(lines.start <= lines.end && lines.end <= LINES, "no such lines");
        for row in self.first..self.first + self.rows {
            let pages = whole_pages(row, &lines, page_size());
            // SAFETY: 1. In bounds: the row exists, and `lines` was checked. 2. Words are accessed
            // atomically, so a word that becomes zero is no data race.
            unsafe { self.keeper.reservation.discard(pages.start, pages.len()) }?;
        }
        Ok(())
    }
}

/// The lines of [`OwnedRows`].
#[derive(Clone, Copy, Debug)]
pub struct OwnedLines<'a> {
    base: NonNull<u8>,
    rows: usize,
    /// Number of lines of each row that were open when this was made.
    lines: usize,
    _rows: PhantomData<&'a OwnedRows>,
}

impl<'a> OwnedLines<'a> {
    /// Returns a line of a row.
    ///
    /// # Panics
    /// When there is no such row, or the line was not handed out in a block before `self` was made.
    #[inline(always)]
    #[must_use]
    pub fn line(self, row: usize, line: usize) -> &'a [AtomicI64; LINE_WORDS] {
        assert!(row < self.rows && line < self.lines, "no such line");
        let at = row * STRIDE + line * LINE_WORDS * 8;
        // SAFETY: 1. In bounds, and open: `row` and `line` were checked, and the reservation, which
        // the owner keeps for `'a`, has `rows` rows from `base` on, of which each has room for its
        // lines. 2. Aligned: the base is page-aligned, `at` a multiple of 64. 3. Initialised:
        // mappings start zeroed. 4. Accessed only atomically: no function of `Rows` goes beyond the
        // atomic rows, and only this function accesses these.
        unsafe { self.base.add(at).cast().as_ref() }
    }
}

/// The data rows of an [`Area`](super::Area), for loads line by line.
#[derive(Clone, Copy, Debug)]
pub struct DataRows<'a> {
    base: NonNull<u8>,
    rows: usize,
    /// Number of lines of each row that were open when this was made.
    lines: usize,
    _rows: PhantomData<&'a Rows>,
}

impl DataRows<'_> {
    /// Returns whether a line can be loaded, because it was handed out in a block before `self` was
    /// made.
    #[inline]
    #[must_use]
    pub fn has(self, row: usize, line: usize) -> bool {
        row < self.rows && line < self.lines
    }

    /// Loads a line of a data row. Costs a load for each word.
    ///
    /// # Panics
    /// When there is no such row or line, or the line was not handed out in a block before `self`
    /// was made.
    ///
    /// # Ordering
    /// SeqCst: ordered after the flush took the dirty bits. Plain loads on x86-64.
    #[inline(always)]
    #[must_use]
    pub fn load_line(self, row: usize, line: usize) -> [i64; LINE_WORDS] {
        let words = self.line(row, line);
        // SeqCst: after the dirty bits were taken; pairs with a locked add's "store, then look".
        std::array::from_fn(|n| words[n].load(Ordering::SeqCst))
    }

    /// Returns whether a line of a data row has these words. Costs a load for each word up to the
    /// first that differs; otherwise the same as [`load_line`](DataRows::load_line).
    ///
    /// # Panics
    /// The same as for [`load_line`](DataRows::load_line).
    ///
    /// # Ordering
    /// The same as for [`load_line`](DataRows::load_line); `words` are loaded Relaxed.
    #[inline(always)]
    #[must_use]
    pub fn is_line(self, row: usize, line: usize, words: &[AtomicI64; LINE_WORDS]) -> bool {
        let now = self.line(row, line);
        // SeqCst: as in `load_line`. Relaxed: as documented above.
        (0..LINE_WORDS).all(|n| now[n].load(Ordering::SeqCst) == words[n].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn line(&self, row: usize, line: usize) -> &[AtomicI64; LINE_WORDS] {
        assert!(row < self.rows && line < self.lines, "no such line");
        let at = row * STRIDE + line * LINE_WORDS * 8;
        // SAFETY: 1 to 4 as in `Rows::at`, for eight words of a line that was checked; an array of
        // atomics has the layout of its words. 5. The rows are borrowed for as long as `self`
        // exists, and the reference leaves this file no further than it lives.
        unsafe { self.base.add(at).cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no such word")]
    fn a_word_that_is_not_open_is_refused() {
        let (rows, _) = Rows::new(None, 1, 0, 0).expect("address space");
        let _ = rows.cpu_word(0);
    }

    /// Rows have numbers of their own, and words the same number in each.
    #[test]
    fn rows_and_words_are_numbered_in_order() {
        let (rows, owned) = Rows::new(None, 3, 2, 1).expect("address space");
        assert_eq!(([0, 1].map(|row| rows.shared_row(row)), owned.first), ([3, 4], 5));
        rows.open(1).expect("room");
        assert_eq!([0, 3, 7].map(|word| rows.index(rows.at(0, word).as_ptr())), [0, 3, 7]);
    }

    /// Each row has a dirty bit for each line, wherever in a page the row begins.
    #[test]
    fn each_row_has_a_dirty_bit_for_each_line() {
        let (rows, _) = Rows::new(None, 64, 0, 0).expect("address space");
        rows.open(LINES).expect("room");
        let tally = AtomicU64::new(0);
        for row in 0..64 {
            let bits = rows.dirty_bits(row, &tally);
            assert_eq!(
                (bits.lines.len(), bits.summary.len()),
                (LINES.div_ceil(64), LINES.div_ceil(64 * 64))
            );
            assert!(!bits.is_dirty(LINES - 1));
            bits.mark(LINES - 1);
            assert!(bits.is_dirty(LINES - 1), "{row}");
        }
    }
}
