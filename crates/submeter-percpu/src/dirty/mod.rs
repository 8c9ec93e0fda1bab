//! Dirty bits: one per 64-byte line and row, set before the first add to that line since the last
//! flush.
//!
//! A flush must find the changed lines without looking at unchanged ones. Bits replace the kernel's
//! linked list of updated groups: setting a bit is one wait-free instruction, is idempotent (a
//! signal handler may do it in the middle of a marking by another thread or its own), and cannot
//! leave a node half linked. The price is a scan of one word for each 64 × 64 lines.
//!
//! # The protocol
//! *Invariant*: an add to a line either commits only when the line's bit is set (sequences test it
//! in the same sequence), or tests the bit afterwards (locked adds). A flush takes bits first, then
//! issues the barrier, then reads words. So an add that no flush will find cannot have returned:
//!
//! - A **sequence** that saw the bit before a flush took it has committed when the barrier returns,
//!   or restarts and finds the bit clear.
//! - A **locked add** stores first, then loads the bit; a flush clears the bit first, then loads
//!   the word. Both are sequentially consistent, so one of them sees the other.
//!
//! The summary (a bit for each word of bits) would break this if a flush trusted it alone: between
//! the setting of the two bits, another thread can find the first one set, add and return.
//! `linking` counts the threads in that interval; a flush that finds any scans every word of bits.
//!
//! Lines that change repeatedly may keep their bits: see [`KeptView`].
//!
//! A flush of a part takes some bits of a word and leaves the summary's bit: it cannot know that
//! the word stays empty, and a superfluous bit costs one load at the next flush.
//!
//! # The count
//! `tally` counts the marks: it is raised before a bit is set, and lowered by
//! [`release`](DirtyBits::release) once the flush's result is where readers find it. So it is never
//! below the number of lines that hold something that readers do not find, not even while a flush
//! runs, and zero means that they find everything. Several rows may share one tally: readers want
//! the sum, and pay for each one that they load.

use std::ops::Range;

mod kept;
mod marked_rows;

pub(crate) use kept::after_own_updates;
pub use kept::{KeptView, Unread};
#[cfg(not(loom))]
pub(crate) use marked_rows::MarkedRows;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::seq_cst_order;

/// Returns the numbers of the bits that are set in word `word` of a set.
#[inline]
pub(crate) fn bits_of(word: usize, bits: u64) -> impl Iterator<Item = usize> + Clone {
    // One step per set bit: of thousands of words most have one.
    std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)))
        .take_while(|&bits| bits != 0)
        .map(move |bits| word * 64 + bits.trailing_zeros() as usize)
}

/// The dirty bits of one row.
#[derive(Clone, Copy, Debug)]
pub struct DirtyBits<'a> {
    /// Bits: one per line. Writers: marking sets them, flushes clear them, by read-modify-write
    /// only.
    pub lines: &'a [AtomicU64],
    /// Bits: one per word of `lines`. Same writers.
    pub summary: &'a [AtomicU64],
    /// Number of threads between setting a bit in `lines` and the one in `summary`.
    pub linking: &'a AtomicU64,
    /// Number of marks made and not released, including those of other rows with the same tally.
    pub tally: &'a AtomicU64,
}

impl DirtyBits<'_> {
    /// Returns whether `line` is dirty. One load.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self, line: usize) -> bool {
        // SeqCst: the second half of a locked add's "store, then look"; pairs with the swap in
        // `take_bits`, so that either this sees the bit taken or the flush sees the add.
        self.lines[line / 64].load(Ordering::SeqCst) >> (line % 64) & 1 == 1
    }

    /// Marks `line`. Wait-free, async-signal-safe, idempotent; four locked instructions, and a
    /// fifth for the first of 64 lines.
    pub fn mark(&self, line: usize) {
        let bit = 1 << (line % 64);
        // SeqCst: before the bits: a flush that misses the summary's bit must see this.
        self.linking.fetch_add(1, Ordering::SeqCst);
        // SeqCst: before the bits: a reader that counts must see this too, and so must a flush that
        // reads it.
        self.tally.fetch_add(1, Ordering::SeqCst);
        // SeqCst: orders the bit against a flush's swap, as `is_dirty` does, and against `linking`.
        let before = self.lines[line / 64].fetch_or(bit, Ordering::SeqCst);
        let (summary, word) = (&self.summary[line / 4096], 1 << (line / 64 % 64));
        // SeqCst, both: after the line's bit: a flush clears the summary first, so a bit in `lines`
        // without its bit here is always followed by this instruction. Also, a flush that has yet
        // to clear a bit seen here has yet to take the line.
        seq_cst_order();
        if summary.load(Ordering::SeqCst) & word == 0 {
            summary.fetch_or(word, Ordering::SeqCst);
        }
        if before & bit != 0 {
            // The thread that set the bit has counted it. SeqCst: as in `release`.
            self.tally.fetch_sub(1, Ordering::SeqCst);
        }
        // SeqCst: after both bits, so that a flush that finds no thread linking finds both.
        self.linking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Finds every mark below `lines_end`: calls `found` with the index and the bits of each word
    /// that has any, where bit `b` of word `w` is line `64 w + b`. Costs one load for each 4,096
    /// lines, and one for each 64 lines that include a marked one.
    ///
    /// The marks stay, but a later `find` does not find them again: their bit in the summary is
    /// gone. So the caller [takes](DirtyBits::take_bits) them, or remembers where they are.
    pub fn find(&self, lines_end: usize, mut found: impl FnMut(usize, u64)) {
        let mut look = |index: usize| {
            let bits = self.marked(index, u64::MAX);
            if bits != 0 {
                found(index, bits);
            }
        };
        let words_end = lines_end.div_ceil(64);
        if self.count() == 0 {
            return;
        }
        // SeqCst: pairs with `mark`: every mark made so far is in the summary, unless some thread
        // is linking.
        if self.linking.load(Ordering::SeqCst) != 0 {
            // The summary stays as it is: a superfluous bit costs one load at the next flush.
            (0..words_end).for_each(look);
            return;
        }
        for (index, summary) in self.summary[..words_end.div_ceil(64)].iter().enumerate() {
            // Relaxed: a hint that saves the swap. It is not stale for marks that this flush must
            // find: they were written before `linking`, and this thread read `linking` first.
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // SeqCst: before the loads of `lines`: bits are cleared in the order in which marks are
            // found. So a bit in `lines` that no flush has found yet keeps its bit in the summary.
            let mut bits = summary.swap(0, Ordering::SeqCst);
            seq_cst_order();
            while bits != 0 {
                look(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Does the same as [`find`](DirtyBits::find), but a later `find` finds the marks again: for
    /// callers that take only some of them. Costs one more load for each word whose marks were
    /// left, or taken in parts, since the last `find`.
    pub fn find_some(&self, lines_end: usize, mut found: impl FnMut(usize, u64)) {
        let words_end = lines_end.div_ceil(64);
        let mut look = |index: usize| {
            let bits = self.marked(index, u64::MAX);
            if bits != 0 {
                found(index, bits);
            }
        };
        if self.count() == 0 {
            return;
        }
        // SeqCst: pairs with `mark`, as in `find`.
        if self.linking.load(Ordering::SeqCst) != 0 {
            (0..words_end).for_each(look);
            return;
        }
        for (index, summary) in self.summary[..words_end.div_ceil(64)].iter().enumerate() {
            // SeqCst: after `linking`, so that it has every mark that was linked by then.
            let mut bits = summary.load(Ordering::SeqCst);
            while bits != 0 {
                look(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Does the same as [`find_some`](DirtyBits::find_some), for a range of lines. Costs a load for
    /// each 64 lines of the range, whatever is marked elsewhere.
    pub fn find_range(&self, lines: Range<usize>, mut found: impl FnMut(usize, u64)) {
        for word in lines.start / 64..lines.end.div_ceil(64) {
            // The word's lines that are in the range.
            let from = lines.start.saturating_sub(word * 64);
            let to = (lines.end - word * 64).min(64);
            let bits = self.marked(word, u64::MAX << from & u64::MAX >> (64 - to));
            if bits != 0 {
                found(word, bits);
            }
        }
    }

    /// Clears the marks `bits` of a word of bits, and returns those that were set, which must be
    /// [released](DirtyBits::release), or marked again. Costs one locked instruction.
    pub fn take_bits(&self, index: usize, bits: u64) -> u64 {
        // SeqCst: before the flush's barrier and its reads of the words; see `is_dirty`. Other bits
        // are left.
        self.lines[index].fetch_and(!bits, Ordering::SeqCst) & bits
    }

    /// Finds every mark below `lines_end`, and takes and releases it at once, line by line: for
    /// owners without a reader that counts.
    pub fn take_lines(&self, lines_end: usize, mut found: impl FnMut(usize)) {
        self.find(lines_end, |index, bits| {
            let mut bits = self.take_bits(index, bits);
            self.release(bits.count_ones());
            while bits != 0 {
                found(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        });
    }

    /// Returns which of the marks `bits` of a word of bits are set. One load.
    #[must_use]
    pub fn marked(&self, index: usize, bits: u64) -> u64 {
        // SeqCst: the mark of an update that returned before precedes this in the single total
        // order.
        self.lines[index].load(Ordering::SeqCst) & bits
    }

    /// Stops counting `marks` marks that were taken: readers now find the lines' contents
    /// elsewhere.
    pub fn release(&self, marks: u32) {
        // SeqCst: after the flush stored the totals; pairs with the load in `count`.
        self.tally.fetch_sub(u64::from(marks), Ordering::SeqCst);
    }

    /// Returns the maximum number of lines that hold something that readers do not find yet. Costs
    /// one load.
    ///
    /// # Ordering
    /// SeqCst: a reader that loads this and then the totals finds in them every update that
    /// returned before, except those counted here.
    #[must_use]
    pub fn count(&self) -> u64 {
        // SeqCst: pairs with `mark` (raised before an update returns) and `release` (lowered after
        // the totals are stored).
        self.tally.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Owned {
        lines: Vec<AtomicU64>,
        summary: Vec<AtomicU64>,
        linking: AtomicU64,
        tally: AtomicU64,
    }

    impl Owned {
        fn new(lines: usize) -> Owned {
            let zeroed = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
            Owned {
                lines: zeroed(lines.div_ceil(64)),
                summary: zeroed(lines.div_ceil(4096)),
                linking: AtomicU64::new(0),
                tally: AtomicU64::new(0),
            }
        }

        fn row(&self) -> DirtyBits<'_> {
            let Owned { lines, summary, linking, tally } = self;
            DirtyBits { lines, summary, linking, tally }
        }
    }

    /// Returns the lines of a word's bits.
    fn lines_of(word: usize, bits: u64) -> impl Iterator<Item = usize> {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
    }

    fn take(row: DirtyBits<'_>, end: usize) -> Vec<usize> {
        let mut lines = Vec::new();
        row.take_lines(end, |line| lines.push(line));
        lines
    }

    fn take_some(row: DirtyBits<'_>, end: usize, wanted: &[usize]) -> Vec<usize> {
        let mut lines = Vec::new();
        row.find_some(end, |word, bits| {
            let wanted =
                lines_of(word, bits).filter(|l| wanted.contains(l)).map(|l| 1 << (l % 64)).sum();
            lines.extend(lines_of(word, row.take_bits(word, wanted)));
        });
        row.release(lines.len() as u32);
        lines
    }

    #[test]
    fn marks_are_found_once_in_order() {
        let owned = Owned::new(20_000);
        let row = owned.row();
        assert_eq!(row.count(), 0);
        for line in [0, 1, 63, 64, 4095, 4096, 8191, 19_999, 63] {
            row.mark(line);
            assert!(row.is_dirty(line));
        }
        assert_eq!(row.count(), 8, "63 was marked twice");
        assert_eq!(take(row, 20_000), [0, 1, 63, 64, 4095, 4096, 8191, 19_999]);
        assert_eq!(row.count(), 0);
        assert_eq!(take(row, 20_000), [0usize; 0]);
    }

    /// Found marks stay and are not found again, but later marks in the same word are.
    #[test]
    fn found_marks_stay_and_are_not_found_again() {
        let owned = Owned::new(4096);
        let row = owned.row();
        let find = || {
            let mut found = Vec::new();
            row.find(4096, |word, bits| found.push((word, bits)));
            found
        };
        [70, 71].into_iter().for_each(|line| row.mark(line));
        assert_eq!(find(), [(1, 3 << 6)]);
        assert_eq!((find(), row.count(), row.is_dirty(70)), (vec![], 2, true));
        row.mark(72);
        assert_eq!(find(), [(1, 7 << 6)], "with what was found before");
        // A thread is linking, so every word is scanned.
        owned.linking.fetch_add(1, Ordering::SeqCst);
        assert_eq!(find(), [(1, 7 << 6)]);
    }

    #[test]
    fn a_half_made_mark_is_found_and_not_stuck() {
        let owned = Owned::new(4096);
        let row = owned.row();
        // The first two steps of `mark`, as a preempted thread leaves them.
        owned.linking.fetch_add(1, Ordering::SeqCst);
        owned.tally.fetch_add(1, Ordering::SeqCst);
        owned.lines[3].fetch_or(1 << 7, Ordering::SeqCst);
        assert_eq!(row.count(), 1);
        let mut found = Vec::new();
        row.find_some(4096, |word, bits| found.push((word, bits)));
        assert_eq!(found, [(3, 1 << 7)]);
        assert_eq!(take(row, 4096), [3 * 64 + 7]);
        // The thread continues: a summary bit without a line's bit is harmless.
        owned.summary[0].fetch_or(1 << 3, Ordering::SeqCst);
        owned.linking.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(row.count(), 0);
        assert_eq!(take(row, 4096), [0usize; 0]);
        row.mark(200);
        assert_eq!(take(row, 4096), [200]);
    }

    #[test]
    fn a_part_is_taken_and_the_rest_is_left() {
        let owned = Owned::new(20_000);
        let row = owned.row();
        [5, 6, 70, 4097, 19_000].into_iter().for_each(|line| row.mark(line));
        assert_eq!(take_some(row, 20_000, &[6, 7, 4097]), [6, 4097]);
        assert_eq!(row.count(), 3);
        assert_eq!(row.take_bits(0, 1 << 6 | 1 << 5), 1 << 5);
        row.release(1);
        // Taken lines can be marked and found again, both in words with marks left and in empty
        // ones.
        row.mark(4097);
        row.mark(6);
        assert_eq!(take_some(row, 20_000, &[6]), [6]);
        assert_eq!(take(row, 20_000), [70, 4097, 19_000]);
        assert_eq!(row.count(), 0);
    }

    #[test]
    fn a_range_has_its_own_lines_only() {
        let edges = [0, 1, 2, 62, 63, 64, 65, 70, 127, 128, 129, 191, 192, 255, 256];
        let owned = Owned::new(257);
        edges.into_iter().for_each(|line| owned.row().mark(line));
        for (start, end) in edges.into_iter().flat_map(|a| edges.map(|b| (a, b))) {
            let mut found = Vec::new();
            owned.row().find_range(start..end, |word, bits| {
                assert_ne!(bits, 0);
                found.extend(lines_of(word, bits));
            });
            let expected = edges.into_iter().filter(|line| (start..end).contains(line));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{start}..{end}");
        }
    }

    #[test]
    fn what_is_taken_counts_until_it_is_released() {
        let owned = Owned::new(64);
        let row = owned.row();
        row.mark(1);
        let mut found = 0;
        row.find(64, |index, bits| found = row.take_bits(index, bits));
        assert_eq!((found, row.count()), (2, 1));
        row.mark(1);
        assert_eq!(row.count(), 2, "once for what is on its way, once for what came since");
        row.release(1);
        assert_eq!(row.count(), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_models;
