//! The rows themselves: addresses, and nothing else that is unsafe.
//!
//! ```text
//! row 0            row 1            ...  row cpus           ...  row cpus+locked    ...
//! | words | marks ||| words | marks |||  | words | marks |||     | words | marks ||| | words |
//!           \- and two counts: of marks that are out, of adds that are announced
//! \--- written by sequences, one CPU each ---/\- locked adds -/  \- shared, atomic -/ \- owned -/
//! <- 2^STRIDE_SHIFT ->
//! ```

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_sys::STRIDE_SHIFT;
use submeter_sys::memory::{Reservation, page_size};

use crate::marks::MarkRow;

const STRIDE: usize = 1 << STRIDE_SHIFT;

/// Words in a row: all but the last 1/128, which holds the marks (1/512 for a bit a line, the rest is
/// slack up to a round number).
pub(crate) const WORDS: usize = (STRIDE - STRIDE / 128) / 8;
/// Words in a line: marks are for 64-byte lines, what CPUs pass around.
pub const LINE_WORDS: usize = 8;
/// Lines in a row.
pub(crate) const LINES: usize = WORDS / LINE_WORDS;

const MARKS_AT: usize = WORDS * 8;
const MARK_WORDS: usize = LINES.div_ceil(64);
const SUMMARY_AT: usize = MARKS_AT + MARK_WORDS * 8;
const SUMMARY_WORDS: usize = MARK_WORDS.div_ceil(64);
const STATE_AT: usize = SUMMARY_AT + SUMMARY_WORDS * 8;
const ANNOUNCED_AT: usize = STATE_AT + 8;
const _: () = assert!(ANNOUNCED_AT + 8 <= STRIDE && MARKS_AT.is_multiple_of(64));

/// By how much owned rows are shifted. Strides are powers of two, so that the same line of any two rows has the
/// same low bits, and a CPU mistakes a load that follows a store to one for dependent on it.
/// Owned rows have no marks, so that there is room.
const OWNED_SHIFT: usize = if cfg!(miri) { 64 } else { 2048 };
const _: () = assert!(WORDS * 8 + OWNED_SHIFT <= STRIDE && OWNED_SHIFT.is_multiple_of(64));

/// How many rows of each kind there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Written by sequences only; 0 where there are none.
    pub(crate) cpus: usize,
    /// Written by locked instructions only.
    pub(crate) locked: usize,
    /// Written by whoever owns the area, atomically.
    pub(crate) shared: usize,
    /// Written through the one [`OwnedRows`] only.
    pub(crate) owned: usize,
}

impl Shape {
    pub(crate) fn data(self) -> usize {
        self.cpus + self.locked
    }

    /// The rows that are accessed atomically.
    fn atomic(self) -> usize {
        self.data() + self.shared
    }
}

/// Reserved rows. All zero at first; a page takes memory from its first write on.
#[derive(Debug)]
pub(crate) struct Rows {
    reservation: Arc<Reservation>,
    shape: Shape,
}

/// The rows that one owner has to itself: plain words, which the compiler may treat as such. One exists for
/// each reservation, made with its [`Rows`], which do not reach these rows.
#[derive(Debug)]
pub(crate) struct OwnedRows {
    /// The first owned row.
    base: NonNull<u8>,
    /// From the start of the reservation to it.
    offset: usize,
    rows: usize,
    keeper: Arc<Reservation>,
}

// SAFETY: it is the only way to its rows, as a `&mut` to them would be.
unsafe impl Send for OwnedRows {}
// SAFETY: nothing can be reached through a shared reference.
unsafe impl Sync for OwnedRows {}

impl OwnedRows {
    /// A line of an owned row, counted from 0.
    ///
    /// # Panics
    /// When row or line does not exist.
    #[inline]
    pub(crate) fn line(&mut self, row: usize, line: usize) -> &mut [i64; LINE_WORDS] {
        assert!(row < self.rows && line < LINES, "no such line");
        let at = (row << STRIDE_SHIFT) + OWNED_SHIFT + line * LINE_WORDS * 8;
        // SAFETY: 1. In bounds: `row` and `line` were checked, and the reservation, which `keeper` keeps,
        // has `rows` rows from `base` on, with room for the shift (checked above). 2. Aligned: the base is page-aligned, `at` a multiple of 64.
        // 3. Initialised: mappings start zeroed. 4. Not aliased: `Rows::new` makes one `OwnedRows`, no
        // function of `Rows` goes beyond the atomic rows, and the result borrows `self` mutably.
        unsafe { self.base.add(at).cast().as_mut() }
    }

    /// Sets the lines to zero where that gives back the memory of a whole page. Others stay as they are.
    pub(crate) fn discard(&mut self, lines: Range<usize>) -> io::Result<()> {
        assert!(lines.start <= lines.end && lines.end <= LINES, "no such lines");
        let page = page_size();
        let start = (OWNED_SHIFT + lines.start * LINE_WORDS * 8).next_multiple_of(page);
        let end = (OWNED_SHIFT + lines.end * LINE_WORDS * 8) / page * page;
        for row in 0..if start < end { self.rows } else { 0 } {
            let offset = self.offset + (row << STRIDE_SHIFT) + start;
            // SAFETY: this is the only way to these rows, see `line`, and borrowed mutably.
            unsafe { self.keeper.discard(offset, end - start) }?;
        }
        Ok(())
    }
}

/// The data rows' words, to be loaded, without the way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataRows<'a> {
    base: NonNull<u8>,
    rows: usize,
    _keeper: PhantomData<&'a Rows>,
}

impl DataRows<'_> {
    /// Loads a line.
    ///
    /// # Panics
    /// When row or line does not exist.
    #[inline(always)]
    pub(crate) fn load_line(self, row: usize, line: usize, order: Ordering) -> [i64; LINE_WORDS] {
        assert!(row < self.rows && line < LINES, "no such line");
        let at = (row << STRIDE_SHIFT) + line * LINE_WORDS * 8;
        // SAFETY: as in `Rows::at`, for eight words in bounds; an array of atomics has the layout of
        // its words. The reference does not leave this function.
        let words: &[AtomicI64; LINE_WORDS] = unsafe { self.base.add(at).cast().as_ref() };
        std::array::from_fn(|n| words[n].load(order))
    }
}

/// A word of which every CPU row has a copy, for the sequences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuWord {
    /// Row 0.
    base: NonNull<u8>,
    /// From the start of the row. Invariant: below `WORDS`, so that word and mark are valid in rows
    /// `0..shape.cpus`, as long as the `Rows` live.
    word: u32,
}

// SAFETY: an address; only sequences dereference it, and they are made for concurrent use.
unsafe impl Send for CpuWord {}
// SAFETY: as for `Send`; it has no interior of its own.
unsafe impl Sync for CpuWord {}

impl CpuWord {
    /// Another word of the same block: the block's owner checked that it has one.
    #[inline(always)]
    pub(crate) fn plus(self, words: usize) -> CpuWord {
        let word = self.word + words as u32;
        debug_assert!((word as usize) < WORDS);
        CpuWord { word, ..self }
    }

    /// Makes the addresses that the sequences take.
    #[inline(always)]
    pub(crate) fn place(self) -> CpuPlace {
        let line = self.word / LINE_WORDS as u32;
        let marks = MARKS_AT + line as usize / 64 * 8;
        let at = |offset: usize| {
            // SAFETY: both lie in row 0, which the base is the start of (the invariant of `word`).
            unsafe { self.base.add(offset) }
        };
        CpuPlace { address: at(self.word as usize * 8).cast(), marks: at(marks).cast(), line }
    }
}

/// A [`CpuWord`], as the sequences take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuPlace {
    /// In row 0. Invariant, also for the marks: valid in rows `0..shape.cpus`, as long as the `Rows` live.
    address: NonNull<i64>,
    marks: NonNull<u64>,
    line: u32,
}

// SAFETY: addresses; only sequences dereference them, and they are made for concurrent use.
unsafe impl Send for CpuPlace {}
// SAFETY: as for `Send`; it has no interior of its own.
unsafe impl Sync for CpuPlace {}

impl CpuPlace {
    #[inline(always)]
    pub(crate) fn address(self) -> *mut i64 {
        self.address.as_ptr()
    }

    /// The word of marks that has the bit of this word's line.
    #[inline(always)]
    pub(crate) fn marks(self) -> *const u64 {
        self.marks.as_ptr()
    }

    /// The line; its mark is bit `line % 64`.
    #[inline(always)]
    pub(crate) fn line(self) -> u32 {
        self.line
    }
}

/// A word of which every locked row has a copy, without the way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedWord {
    /// In the first locked row.
    base: NonNull<u8>,
    rows: usize,
}

// SAFETY: an address; whoever dereferences it does so through atomics.
unsafe impl Send for LockedWord {}
// SAFETY: as for `Send`.
unsafe impl Sync for LockedWord {}

impl LockedWord {
    #[inline(always)]
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// The word in a row. `_keeper` is the block that the word is of.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline(always)]
    pub(crate) fn at<T>(self, _keeper: &T, row: usize) -> &AtomicI64 {
        assert!(row < self.rows, "no such row");
        // SAFETY: 1. The row exists, so the word does. 2. Aligned and initialised, as in `Rows::at`. 3. Locked
        // rows are accessed atomically only. 4. The block keeps the reservation as long as it is borrowed.
        unsafe { AtomicI64::from_ptr(self.base.add(row << STRIDE_SHIFT).cast().as_ptr()) }
    }
}

impl Rows {
    pub(crate) fn new(shape: Shape) -> io::Result<(Rows, OwnedRows)> {
        // Checked: the owner says how many are shared and owned, and every later bound is this sum.
        let rows = shape.data().checked_add(shape.shared);
        let rows = rows.and_then(|rows| rows.checked_add(shape.owned));
        let bytes = rows.and_then(|rows| rows.checked_mul(STRIDE));
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let reservation = Arc::new(Reservation::new(bytes)?);
        // Wrapping: not dereferenced where there are none; else in bounds.
        let offset = shape.atomic() << STRIDE_SHIFT;
        let base = reservation.base().as_ptr().wrapping_add(offset);
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        let owned = OwnedRows { base, offset, rows: shape.owned, keeper: Arc::clone(&reservation) };
        Ok((Rows { reservation, shape }, owned))
    }

    /// The data rows, for many loads.
    pub(crate) fn data(&self) -> DataRows<'_> {
        let base = self.reservation.base();
        DataRows { base, rows: self.shape.data(), _keeper: PhantomData }
    }

    /// The lines of a shared row, counted from 0.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn shared_lines(&self, row: usize) -> &[[AtomicI64; LINE_WORDS]] {
        assert!(row < self.shape.shared, "no such row");
        // SAFETY: as in `at`, for all lines of the row, which has `STRIDE` bytes, more than its lines; an
        // array of atomics has the layout of its words.
        unsafe {
            let first = self.row(self.shape.data() + row).cast::<[AtomicI64; LINE_WORDS]>();
            std::slice::from_raw_parts(first.as_ptr(), LINES)
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The word's address for sequences.
    ///
    /// # Panics
    /// When the word does not exist.
    #[inline]
    pub(crate) fn cpu_word(&self, word: usize) -> CpuWord {
        assert!(word < WORDS && self.shape.cpus > 0, "no such word");
        CpuWord { base: self.reservation.base(), word: word as u32 }
    }

    /// A word in a row, as an atomic. Words of CPU rows may only be loaded through it.
    ///
    /// # Panics
    /// When row or word does not exist.
    #[inline]
    fn at(&self, row: usize, word: usize) -> &AtomicI64 {
        assert!(word < WORDS && row < self.shape.atomic(), "no such word");
        // SAFETY: 1. In bounds: `row` and `word` were checked. 2. Aligned to 8: the base is
        // page-aligned, strides and words are multiples of 8. 3. Initialised: mappings start
        // zeroed. 4. Every concurrent access is atomic, but for the sequences' plain stores to CPU
        // rows: single instructions on aligned words, which the hardware makes as atomic as a relaxed store.
        // 5. Lives as long as `self`.
        unsafe { AtomicI64::from_ptr(self.row(row).add(word * 8).cast().as_ptr()) }
    }

    /// Loads a word of any row.
    #[inline]
    pub(crate) fn load(&self, row: usize, word: usize, order: Ordering) -> i64 {
        self.at(row, word).load(order)
    }

    /// A word of a locked row, counted from 0.
    #[inline]
    pub(crate) fn locked(&self, row: usize, word: usize) -> &AtomicI64 {
        assert!(row < self.shape.locked, "no such row");
        self.at(self.shape.cpus + row, word)
    }

    /// A word of every locked row.
    ///
    /// # Panics
    /// When the word does not exist.
    pub(crate) fn locked_word(&self, word: usize) -> LockedWord {
        let base = NonNull::from(self.locked(0, word)).cast::<u8>();
        // Derived from the reservation, not from the reference, which is to one word only.
        let base = self.row(self.shape.cpus).with_addr(base.addr());
        LockedWord { base, rows: self.shape.locked }
    }

    /// A word of a shared row, counted from 0.
    #[inline]
    pub(crate) fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        assert!(row < self.shape.shared, "no such row");
        self.at(self.shape.data() + row, word)
    }

    /// The marks of a data row, or of a shared one, whose number comes after.
    #[inline]
    pub(crate) fn marks(&self, row: usize) -> MarkRow<'_> {
        assert!(row < self.shape.atomic(), "no such row");
        let base = self.row(row);
        // SAFETY: 1. The three regions lie inside the row (checked at compile time above), do not
        // overlap the words, and are aligned to 8. 2. They start zeroed, which is a valid value of the
        // atomics. 3. Everybody accesses them atomically; the sequences' loads are single aligned
        // loads. 4. They live as long as `self`.
        unsafe {
            MarkRow {
                lines: std::slice::from_raw_parts(
                    base.add(MARKS_AT).cast::<AtomicU64>().as_ptr(),
                    MARK_WORDS,
                ),
                summary: std::slice::from_raw_parts(
                    base.add(SUMMARY_AT).cast::<AtomicU64>().as_ptr(),
                    SUMMARY_WORDS,
                ),
                state: base.add(STATE_AT).cast::<AtomicU64>().as_ref(),
            }
        }
    }

    /// The count of adds that are announced in a row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub(crate) fn announced(&self, row: usize) -> &AtomicU64 {
        assert!(row < self.shape.atomic(), "no such row");
        // SAFETY: as in `marks`, for the word after the state.
        unsafe { self.row(row).add(ANNOUNCED_AT).cast::<AtomicU64>().as_ref() }
    }

    /// Zeroes words in every row that is accessed atomically, for their next user.
    ///
    /// Only for words that nobody can add to: a sequence that runs meanwhile would bring the old
    /// value back. Whoever uses the words next must learn of it through a lock or the like.
    pub(crate) fn zero(&self, words: Range<usize>) {
        // Row by row: each is a page of its own.
        for row in 0..self.shape.atomic() {
            for word in words.clone() {
                let word = self.at(row, word);
                // Relaxed: the caller synchronises. Loaded first: a store would commit an untouched page.
                if word.load(Ordering::Relaxed) != 0 {
                    // Relaxed: as above.
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Gives back the memory of whole pages of words, in every row that is accessed atomically; they read as zero then. The same
    /// rules as for [`zero`](Rows::zero) apply, and everything there must be zero already or not matter.
    ///
    /// # Panics
    /// When there are no such lines.
    pub(crate) fn discard(&self, lines: Range<usize>) -> io::Result<()> {
        assert!(lines.start <= lines.end && lines.end <= LINES, "no such lines");
        const LINE: usize = LINE_WORDS * 8;
        for row in 0..self.shape.atomic() {
            let offset = (row << STRIDE_SHIFT) + lines.start * LINE;
            // SAFETY: 1. Words are accessed atomically, or by the sequences' single stores, see `at`. 2. Whoever
            // calls knows that nobody relies on them; if somebody did, a count would be wrong, and no memory.
            unsafe { self.reservation.discard(offset, lines.len() * LINE) }?;
        }
        Ok(())
    }

    #[inline]
    fn row(&self, row: usize) -> NonNull<u8> {
        debug_assert!(row < self.shape.atomic());
        // SAFETY: callers checked `row`; the reservation has `STRIDE` bytes for each.
        unsafe { self.reservation.base().add(row << STRIDE_SHIFT) }
    }
}
