//! Dirty bits: one per 64-byte line and row, set before the first add to that line since the last
//! flush.
//!
//! A flush must find what changed without looking at what did not. Bits serve instead of the
//! kernel's linked list of updated groups: setting a bit is one wait-free instruction, is
//! idempotent (a signal handler may do it in the middle of another thread's, or its own thread's,
//! marking), and cannot leave a node half linked. The price is a scan of one word for each 64 × 64
//! lines.
//!
//! # The protocol
//! *Invariant*: an add to a line commits only when the line's bit is set (sequences test it in the
//! same sequence), or tests it afterwards (locked adds). A flush takes bits first, then issues the
//! barrier, then reads words. So an add that no flush will find cannot have returned:
//!
//! - A **sequence** that saw the bit before a flush took it has committed when the barrier returns,
//!   or starts again and finds the bit clear.
//! - A **locked add** stores first, then loads the bit; a flush clears the bit first, then loads
//!   the word. Both are sequentially consistent, so one of them sees the other.
//!
//! The summary (a bit for each word of bits) would break this if a flush trusted it alone: between
//! the setting of the two bits, another thread can find the first one set, add and return.
//! `linking` counts the threads that are between them; a flush that finds some scans every word of
//! bits.
//!
//! Lines that change again and again may keep their bits: see [`Kept`].
//!
//! A flush of a part takes some bits of a word and leaves the summary's bit: it cannot know that
//! the word stays empty, and a bit too many costs one load at the next flush.
//!
//! # The count
//! `tally` counts the marks: raised before a bit is set, lowered by
//! [`release`](DirtyBits::release) once what the flush read is where readers find it. So it is
//! never below the number of lines that hold something that readers do not find, not even while a
//! flush runs, and zero means that they find all. It may be of several rows together: readers want
//! the sum, and pay for each that they load.

use std::ops::Range;

mod kept;

pub use kept::Kept;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::seq_cst_order;

/// The dirty bits of one row.
#[derive(Clone, Copy, Debug)]
pub struct DirtyBits<'a> {
    /// Bits: one per line. Writers: marking sets, flushes clear; read-modify-write only.
    pub lines: &'a [AtomicU64],
    /// Bits: one per word of `lines`. Same writers.
    pub summary: &'a [AtomicU64],
    /// Threads between setting a bit in `lines` and the one in `summary`.
    pub linking: &'a AtomicU64,
    /// Marks that were made and not released, those of other rows with the same tally included.
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
        // SeqCst: before the bits: so must a reader that counts, and a flush that asks for it.
        self.tally.fetch_add(1, Ordering::SeqCst);
        // SeqCst: orders the bit against a flush's swap, as `is_dirty` does, and against `linking`.
        let before = self.lines[line / 64].fetch_or(bit, Ordering::SeqCst);
        let (summary, word) = (&self.summary[line / 4096], 1 << (line / 64 % 64));
        // SeqCst, both: after the line's bit: a flush clears the summary first, so that a bit in
        // `lines` without its bit here is always followed by this instruction. And a flush that has
        // yet to clear a bit seen here has yet to take the line.
        seq_cst_order();
        if summary.load(Ordering::SeqCst) & word == 0 {
            summary.fetch_or(word, Ordering::SeqCst);
        }
        if before & bit != 0 {
            // The thread that set the bit has counted it. SeqCst: as `release`.
            self.tally.fetch_sub(1, Ordering::SeqCst);
        }
        // SeqCst: after both bits, so that a flush that finds no thread linking finds both.
        self.linking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Clears every mark below `lines_end`, but for those that `keep` returns for the index of a
    /// word, and calls `found` with the index and the bits of each word that had some: bit `b` of
    /// word `w` is line `64 w + b`. Costs one load for each 4,096 lines, and one locked instruction
    /// for each 64 lines that have a marked one. What was found must be
    /// [released](DirtyBits::release), or marked again.
    ///
    /// Marks that were kept are found by those who know where they are, with
    /// [`take_bits`](DirtyBits::take_bits) and [`marked`](DirtyBits::marked), and not by a later
    /// `take`: their bit in the summary is gone.
    pub fn take(
        &self,
        lines_end: usize,
        keep: impl Fn(usize) -> u64,
        mut found: impl FnMut(usize, u64),
    ) {
        let mut take_word = |index: usize| {
            let bits = self.take_word(index, u64::MAX, &keep);
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
            // The summary stays as it is: a bit too many costs one load at the next flush.
            (0..words_end).for_each(take_word);
            return;
        }
        for (index, summary) in self.summary[..words_end.div_ceil(64)].iter().enumerate() {
            // Relaxed: a hint that spares the swap. Not stale for marks that this flush owes:
            // `linking` was read before, in the same order in which they were written.
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // SeqCst: before the swaps of `lines`: clearing in the order in which marks are found
            // is what keeps a bit in `lines` from outliving its bit in the summary.
            let mut bits = summary.swap(0, Ordering::SeqCst);
            seq_cst_order();
            while bits != 0 {
                take_word(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// As [`take`](DirtyBits::take), line by line, and released at once: for owners without a
    /// reader that counts.
    pub fn take_lines(&self, lines_end: usize, mut found: impl FnMut(usize)) {
        self.take(
            lines_end,
            |_| 0,
            |index, mut bits| {
                self.release(bits.count_ones());
                while bits != 0 {
                    found(index * 64 + bits.trailing_zeros() as usize);
                    bits &= bits - 1;
                }
            },
        );
    }

    /// Clears some marks of each word of bits that has any: `which` is shown the word's index and
    /// bits, and returns those to take; `found` is called as by [`take`](DirtyBits::take). Costs a
    /// load more for each word whose marks were left, or taken in parts, since the last whole
    /// `take`.
    pub fn take_some(
        &self,
        lines_end: usize,
        mut which: impl FnMut(usize, u64) -> u64,
        mut found: impl FnMut(usize, u64),
    ) {
        let words_end = lines_end.div_ceil(64);
        let mut visit = |index: usize| {
            // SeqCst: an update that returned before has its mark in the single order before this.
            let bits = self.lines[index].load(Ordering::SeqCst);
            if bits != 0 {
                let taken = self.take_bits(index, which(index, bits));
                if taken != 0 {
                    found(index, taken);
                }
            }
        };
        if self.count() == 0 {
            return;
        }
        // SeqCst: pairs with `mark`, as in `take`.
        if self.linking.load(Ordering::SeqCst) != 0 {
            (0..words_end).for_each(visit);
            return;
        }
        for (index, summary) in self.summary[..words_end.div_ceil(64)].iter().enumerate() {
            // SeqCst: after `linking`, so that it has every mark that was linked by then.
            let mut bits = summary.load(Ordering::SeqCst);
            while bits != 0 {
                visit(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Clears the marks `bits` of a word of bits, and returns which of them were set. To be
    /// released or made again, as what [`take`](DirtyBits::take) finds.
    pub fn take_bits(&self, index: usize, bits: u64) -> u64 {
        self.take_word(index, bits, |_| 0)
    }

    /// As [`take_bits`](DirtyBits::take_bits), but for the marks that `keep` returns. It is asked
    /// only where there are marks: most words of a range have none.
    fn take_word(&self, index: usize, mut bits: u64, keep: impl Fn(usize) -> u64) -> u64 {
        // SeqCst: spares the locked instruction, and is free where that is dear; an update that
        // returned before the flush began has its mark in the single order before this, and so has
        // one whose thread found the summary's bit set before `take` cleared it.
        let marked = self.lines[index].load(Ordering::SeqCst) & bits;
        if marked == 0 {
            return 0;
        }
        bits &= !keep(index);
        if marked & bits == 0 {
            return 0;
        }
        // SeqCst, both: before the flush's barrier and its reads of the words; see `is_dirty`.
        // Other bits are left, and the summary's: their owner is linked through it.
        if bits == u64::MAX {
            self.lines[index].swap(0, Ordering::SeqCst)
        } else {
            self.lines[index].fetch_and(!bits, Ordering::SeqCst) & bits
        }
    }

    /// Returns which of the marks `bits` of a word of bits are set. One load.
    #[must_use]
    pub fn marked(&self, index: usize, bits: u64) -> u64 {
        // SeqCst: an update that returned before has its mark in the single order before this.
        self.lines[index].load(Ordering::SeqCst) & bits
    }

    /// Clears the marks of a range of lines, but for those that `keep` returns, and calls `found`,
    /// both as for [`take`](DirtyBits::take). Costs a load for each 64 lines of the range, wherever
    /// else there are marks.
    pub fn take_range(
        &self,
        lines: Range<usize>,
        keep: impl Fn(usize) -> u64,
        mut found: impl FnMut(usize, u64),
    ) {
        for word in lines.start / 64..lines.end.div_ceil(64) {
            // Those of the word's lines that are in the range.
            let from = lines.start.saturating_sub(word * 64);
            let to = (lines.end - word * 64).min(64);
            let wanted = u64::MAX << from & u64::MAX >> (64 - to);
            let bits = self.take_word(word, wanted, &keep);
            if bits != 0 {
                found(word, bits);
            }
        }
    }

    /// Stops counting `marks` of those that were taken: what they stood for is where readers find
    /// it.
    pub fn release(&self, marks: u32) {
        // SeqCst: after the flush stored the totals; pairs with the load in `count`.
        self.tally.fetch_sub(u64::from(marks), Ordering::SeqCst);
    }

    /// Returns how many lines at most hold something that readers do not find yet. One load.
    ///
    /// # Ordering
    /// SeqCst: a reader that loads this and then the totals finds in them every update that
    /// returned before and that this does not count.
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

    /// The lines of a word's bits.
    fn lines_of(word: usize, bits: u64) -> impl Iterator<Item = usize> {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
    }

    fn take(row: DirtyBits<'_>, end: usize) -> Vec<usize> {
        let mut lines = Vec::new();
        row.take(end, |_| 0, |word, bits| lines.extend(lines_of(word, bits)));
        row.release(lines.len() as u32);
        lines
    }

    fn take_some(row: DirtyBits<'_>, end: usize, wanted: &[usize]) -> Vec<usize> {
        let mut lines = Vec::new();
        let which = |word, bits| {
            lines_of(word, bits).filter(|l| wanted.contains(l)).map(|l| 1 << (l % 64)).sum()
        };
        row.take_some(end, which, |word, bits| lines.extend(lines_of(word, bits)));
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

    #[test]
    fn what_is_to_be_kept_is_asked_only_of_words_with_marks() {
        let owned = Owned::new(4096);
        let row = owned.row();
        [70, 71].into_iter().for_each(|line| row.mark(line));
        // A thread is linking, so that every word is looked at.
        owned.linking.fetch_add(1, Ordering::SeqCst);
        let asked = std::cell::RefCell::new(Vec::new());
        let keep = |word| {
            asked.borrow_mut().push(word);
            1 << 6
        };
        let mut found = Vec::new();
        row.take_range(0..4096, keep, |word, bits| found.push((word, bits)));
        row.take(4096, keep, |word, bits| found.push((word, bits)));
        assert_eq!((found, asked.into_inner()), (vec![(1, 1 << 7)], vec![1, 1]));
        assert_eq!((row.marked(1, u64::MAX), row.count()), (1 << 6, 2));
    }

    #[test]
    fn a_mark_that_is_half_made_is_found_and_not_stuck() {
        let owned = Owned::new(4096);
        let row = owned.row();
        // The first two steps of `mark`, as a preempted thread leaves them.
        owned.linking.fetch_add(1, Ordering::SeqCst);
        owned.tally.fetch_add(1, Ordering::SeqCst);
        owned.lines[3].fetch_or(1 << 7, Ordering::SeqCst);
        assert_eq!(row.count(), 1);
        assert_eq!(take_some(row, 4096, &[0]), [0usize; 0]);
        assert_eq!(take(row, 4096), [3 * 64 + 7]);
        // The thread goes on: a summary bit without a line's is harmless.
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
        // What was taken can be marked and found again, in the parts that were left and in those
        // that are empty.
        row.mark(4097);
        row.mark(6);
        assert_eq!(take_some(row, 20_000, &[6]), [6]);
        assert_eq!(take(row, 20_000), [70, 4097, 19_000]);
        assert_eq!(row.count(), 0);
    }

    #[test]
    fn what_is_taken_counts_until_it_is_released() {
        let owned = Owned::new(64);
        let row = owned.row();
        row.mark(1);
        let mut found = 0;
        row.take(64, |_| 0, |_, bits| found = bits);
        assert_eq!((found, row.count()), (2, 1));
        row.mark(1);
        assert_eq!(row.count(), 2, "once for what is on its way, once for what came since");
        row.release(1);
        assert_eq!(row.count(), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_models;
