//! Blocks: some words, and the adds to them.

use std::sync::atomic::Ordering;

use submeter_sys::{Exit, ResolvedHint, Rseq};

use super::layout::LINE_WORDS;
use super::raw::CpuWord;
use super::{Area, Inner};
use crate::backend::locked::{LockedHere, LockedWord};
use crate::backend::{locked, rseq};
use crate::overflow::{InFlight, batch_overflow, marked_overflow};
use crate::pending::Updated;

#[expect(unsafe_code, reason = "vouches for the way to the words, whose keeper it holds")]
mod raw;

pub use raw::{Block, BlockRef};
pub(crate) use raw::{BlockWord, Words};

/// Properties.
impl<T> Block<T> {
    #[inline(always)]
    fn words(&self) -> &Words {
        self.block_ref().words()
    }

    /// Returns its area.
    #[must_use]
    pub fn area(&self) -> &Area {
        self.words().area()
    }

    /// Returns its first word's index in a row.
    #[must_use]
    pub fn first_word(&self) -> usize {
        self.words().first()
    }

    /// Returns its first line's index in a row.
    #[must_use]
    pub fn first_line(&self) -> usize {
        self.words().first() / LINE_WORDS
    }

    /// Returns the number of its words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words().len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns a word of the locked rows. Its writers leave zeroing to `Drop`; `sum` and flushes do
    /// not look there unless [`add`](Block::add) was ever used.
    ///
    /// # Panics
    /// When there is no such word.
    pub(crate) fn locked_word(&self, word: usize) -> LockedWord {
        assert!(word < self.len(), "no such word");
        self.area().inner.rows.locked_word(self.first_word() + word)
    }

    /// Returns the hint that determines the locked row for the calling thread.
    pub(crate) fn hint(&self) -> ResolvedHint {
        self.area().inner.hint
    }
}

/// Adding and reading.
impl<T> Block<T> {
    /// Adds `n` to a word, with wraparound, at about the price of a plain add.
    ///
    /// # Panics
    /// When there is no such word.
    ///
    /// # Ordering
    /// None: it publishes only itself.
    #[inline(always)]
    pub fn add(&self, word: usize, n: i64) {
        if !self.cpu_word(word).is_some_and(|at| at.add(n)) {
            self.add_otherwise(word, n);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_otherwise(&self, word: usize, n: i64) {
        match self.locked_here(word) {
            // SeqCst: as in `Words::locked_add`.
            Some(here) => drop(here.word.fetch_add(n, Ordering::SeqCst)),
            None => self.words().add_slow(word, n),
        }
    }

    /// Adds `n` to a word, and first marks the word's line dirty if it is not, so that
    /// [`Area::take_dirty`] finds it. If the add crosses boundaries of the batch `mask + 1`, a
    /// power of two, calls `crossed` with their number, upward or downward.
    ///
    /// Until `crossed` returns, the add counts in [`Area::in_flight`].
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    pub fn add_dirty(&self, word: usize, n: i64, mask: u64, crossed: impl FnOnce(Updated<'_>)) {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if !self.add_dirty_within(word, n, mask) {
            #[cold]
            #[inline(never)]
            fn otherwise<T>(
                at: &Block<T>,
                word: usize,
                n: i64,
                mask: u64,
                f: impl FnOnce(Updated<'_>),
            ) {
                at.add_dirty_otherwise(word, n, mask, f);
            }
            otherwise(self, word, n, mask, crossed);
        }
    }

    /// Does the same as [`add_dirty`](Block::add_dirty), after
    /// [`add_dirty_within`](Block::add_dirty_within) returned false: for every add where there are
    /// no sequences. Choosing between the two inline would cost callers that have sequences a
    /// comparison.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline]
    pub fn add_dirty_otherwise(
        &self,
        word: usize,
        n: i64,
        mask: u64,
        crossed: impl FnOnce(Updated<'_>),
    ) {
        if let Some(here) = self.locked_here(word)
            && locked::add_within(here.word, n, mask, marked_overflow)
        {
            if !here.is_dirty() {
                self.words().mark_locked(here.row, here.line);
            }
            return;
        }
        self.words().add_dirty_slow(word, n, mask, crossed);
    }

    /// Sums a word over its rows: exact once the adds are over, and never misses an add that
    /// returned before the call. Costs a load for each row in use.
    ///
    /// # Panics
    /// When there is no such word.
    #[must_use]
    pub fn sum(&self, word: usize) -> i64 {
        self.words().sum(word)
    }
}

/// The operations of a block on a word that was already checked.
impl BlockWord {
    /// Returns its area.
    pub(crate) fn area(&self) -> &Area {
        self.words().area()
    }

    /// Does the same as [`Block::add`].
    #[inline(always)]
    pub(crate) fn add(&self, n: i64) {
        if !self.cpu_word().add(n) {
            self.words().add_slow(self.index(), n);
        }
    }

    /// Adds `n` by a sequence that refuses to cross a boundary of the batch `mask + 1`. Returns
    /// whether it was done: never without sequences.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_inside(&self, n: i64, mask: u64) -> bool {
        debug_assert!((mask + 1).is_power_of_two());
        self.cpu_word().add_within(n, mask)
    }

    /// Does the same as [`add_inside`](Self::add_inside) by a locked instruction: never with
    /// sequences. It may fail spuriously.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_inside_locked(&self, n: i64, mask: u64) -> bool {
        !self.has_sequences()
            && self.words().locked_add_within(self.index(), n, mask, batch_overflow).is_some()
    }

    /// Adds `n`, which [`add_inside`](Self::add_inside) refused, and returns the overflow: the
    /// amount by which it crossed boundaries of the batch `mask + 1`, a power of two. That is a
    /// multiple of the batch, or 0.
    ///
    /// Once the adds are over, the overflows that they returned are below the sum of the words by
    /// less than a batch for each row. Before that, the overflow of a finished add can still be
    /// part of what other adds are about to return.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_across(&self, n: i64, mask: u64) -> i64 {
        if self.has_sequences() {
            let added = self.cpu_word().add_overflow(n);
            if added.exit().is_none() {
                return batch_overflow(added.after().wrapping_sub(n), n, mask);
            }
        }
        self.words().add_overflow_slow(self.index(), n, mask)
    }

    /// Does the same as [`Block::sum`].
    #[must_use]
    pub(crate) fn sum(&self) -> i64 {
        self.words().sum(self.index())
    }

    #[inline(always)]
    fn has_sequences(&self) -> bool {
        self.cpu_word().rseq().cpus() != 0
    }
}

impl LockedHere<'_> {
    /// Does the same as [`DirtyBits::is_dirty`](crate::dirty::DirtyBits::is_dirty), for the word's
    /// line.
    #[inline(always)]
    fn is_dirty(&self) -> bool {
        // SeqCst: as in `DirtyBits::is_dirty`, after the add.
        self.marks.load(Ordering::SeqCst) >> (self.line % 64) & 1 == 1
    }
}

/// The cold path after an add whose sequence did not commit, or where there are no sequences. These
/// are not methods of `Block`, so that a caller that has one in registers need not store it in
/// memory for them.
impl Words {
    /// Returns a word for sequences, where there are any.
    #[inline]
    pub(super) fn cpu_word(&self, word: usize) -> Option<CpuWord<'_>> {
        assert!(word < self.len(), "no such word");
        self.area().inner.rows.cpu_word(self.first() + word)
    }

    /// Does the same as [`Block::sum`].
    fn sum(&self, word: usize) -> i64 {
        assert!(word < self.len(), "no such word");
        let inner: &Inner = &self.area().inner;
        let rows = self.area().rows_in_use();
        // SeqCst: as in `Area::load`.
        inner.rows.sum(rows.end, self.first() + word, Ordering::SeqCst)
    }

    /// Adds with a batch whose boundaries only a change of sign crosses.
    #[cold]
    #[inline(never)]
    pub(super) fn add_slow(&self, word: usize, n: i64) {
        let _ = self.add_overflow_slow(word, n, i64::MAX.cast_unsigned());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_overflow_slow(&self, word: usize, n: i64, mask: u64) -> i64 {
        if let Some(at) = self.cpu_word(word) {
            let again = || at.add_overflow(n);
            // The first attempt is separate: an add that only crosses a boundary ends here.
            let mut added = again();
            if added.exit().is_some() {
                match rseq::retry(added, |exit| may_retry(at.rseq(), exit), again) {
                    Some(done) => added = done,
                    None => return batch_overflow(self.locked_add(word, n).1, n, mask),
                }
            }
            return batch_overflow(added.after().wrapping_sub(n), n, mask);
        }
        batch_overflow(self.locked_add(word, n).1, n, mask)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_dirty_slow(
        &self,
        word: usize,
        n: i64,
        mask: u64,
        crossed: impl FnOnce(Updated<'_>),
    ) {
        if self.add_dirty_inside(word, n, mask) {
            return;
        }
        let _in_flight = self.begin_in_flight();
        let overflow = self.add_dirty_across(word, n, mask);
        if overflow != 0 {
            crossed(Updated::fenced(overflow >> mask.count_ones()));
        }
    }

    /// Adds if that crosses no boundary, so that it need not count as in flight; may fail
    /// spuriously.
    fn add_dirty_inside(&self, word: usize, n: i64, mask: u64) -> bool {
        let inner: &Inner = &self.area().inner;
        let line = (self.first() + word) / LINE_WORDS;
        let Some(at) = self.cpu_word(word) else {
            let row = self.locked_add_within(word, n, mask, marked_overflow);
            return row.inspect(|&row| self.mark_locked(row, line)).is_some();
        };
        let rseq = at.rseq();
        let adopted = || rseq.adopt_thread().then(|| rseq.row()).flatten();
        let Some(row) = rseq.row().or_else(adopted) else { return false };
        let row = row as usize;
        if inner.dirty_bits(row).is_dirty(line) {
            // An add that is refused while its line is dirty crosses a boundary, or was disturbed,
            // which is rare.
            return false;
        }
        // If the thread has moved, this mark is superfluous, and the add is refused once more.
        inner.mark(row, line);
        self.add_dirty_within(word, n, mask)
    }

    /// Adds, whatever boundaries that crosses; returns the overflow.
    fn add_dirty_across(&self, word: usize, n: i64, mask: u64) -> i64 {
        let line = (self.first() + word) / LINE_WORDS;
        if let Some(at) = self.cpu_word(word) {
            let before_retry = |exit| {
                if exit == Exit::Unmarked {
                    // If the thread moves before it retries, it finds another line clean, and this
                    // mark is superfluous.
                    if let Some(row) = at.rseq().row() {
                        self.area().inner.mark(row as usize, line);
                    }
                }
                may_retry(at.rseq(), exit)
            };
            let again = || at.add_dirty(n);
            if let Some(added) = rseq::retry(again(), before_retry, again) {
                return marked_overflow(added.after().wrapping_sub(n), n, mask);
            }
        }
        let (row, before) = self.locked_add(word, n);
        self.mark_locked(row, line);
        marked_overflow(before, n, mask)
    }

    /// Marks a line of a locked row unless it is dirty. Unlike in a sequence, this comes after the
    /// add: see the protocol in `dirty`.
    fn mark_locked(&self, row: usize, line: usize) {
        let inner: &Inner = &self.area().inner;
        let row = inner.rows.cpus() + row;
        if !inner.dirty_bits(row).is_dirty(line) {
            inner.mark(row, line);
        }
    }

    /// Counts an add as in flight, in a nearby row: any row will do, since a reader sums over all.
    fn begin_in_flight(&self) -> InFlight<'_> {
        let inner: &Inner = &self.area().inner;
        let row = inner.rows.rseq().and_then(Rseq::row);
        let locked = || inner.rows.cpus() + self.locked_row();
        inner.tallies.begin(row.map_or_else(locked, |row| row as usize))
    }

    /// Returns the locked row for the calling thread.
    #[inline]
    fn locked_row(&self) -> usize {
        let inner: &Inner = &self.area().inner;
        locked::row(inner.hint, inner.rows.locked_rows())
    }

    /// Adds by a locked instruction unless that crosses a boundary of the batch `mask + 1`. Returns
    /// the locked row where it was done; may fail spuriously.
    #[inline]
    fn locked_add_within(
        &self,
        word: usize,
        n: i64,
        mask: u64,
        overflow: impl Fn(i64, i64, u64) -> i64,
    ) -> Option<usize> {
        assert!(word < self.len(), "no such word");
        let inner: &Inner = &self.area().inner;
        let row = self.locked_row();
        inner.use_locked();
        let at = inner.rows.locked(row, self.first() + word);
        locked::add_within(at, n, mask, overflow).then_some(row)
    }

    /// Adds by a locked instruction, in a row that no sequence writes; returns the locked row and
    /// the word's previous value.
    #[inline]
    fn locked_add(&self, word: usize, n: i64) -> (usize, i64) {
        assert!(word < self.len(), "no such word");
        let inner: &Inner = &self.area().inner;
        let row = self.locked_row();
        inner.use_locked();
        // SeqCst: the "store" of "store, then look"; see `dirty`.
        let before = inner.rows.locked(row, self.first() + word).fetch_add(n, Ordering::SeqCst);
        (row, before)
    }
}

/// Returns whether another attempt may succeed.
fn may_retry(rseq: Rseq, exit: Exit) -> bool {
    exit != Exit::Outside || rseq.adopt_thread()
}

#[cfg(test)]
mod tests {
    use submeter_sys::Backend;

    use super::super::layout::WORDS;
    use super::*;

    #[test]
    fn a_locked_word_keeps_its_rows() {
        let area = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        let word = area.block(1).expect("room").locked_word(0);
        drop(area);
        // Relaxed, both: one thread.
        word.at(0).fetch_add(3, Ordering::Relaxed);
        assert_eq!(word.at(0).load(Ordering::Relaxed), 3, "mapped, whatever else is gone");
    }

    /// Marked adds cross a boundary half a batch away from zero, but none at zero.
    ///
    /// The sequences refuse exactly what `add_dirty` regards as a crossing: both find the same
    /// boundaries.
    #[test]
    fn marked_adds_cross_half_a_batch_from_zero() {
        // The affinity ends with the thread. Miri has one CPU, and no calls for affinity; systems
        // other than Linux have none either, and a row for each thread.
        let on_one_cpu = || {
            match submeter_sys::cpu::affinity() {
                _ if cfg!(miri) => {}
                Ok(cpus) => submeter_sys::cpu::set_affinity(&cpus[..1]).expect("allowed"),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
            }
            let areas = [Area::new(|_| 0), Area::with_backend(Backend::LockedByThread, |_| 0)];
            for area in areas.map(|area| area.expect("address space")) {
                let block = area.block(1).expect("room");
                for batch in [1_i64 << 12, 1 << 17, 1 << 20] {
                    let crossed = std::cell::Cell::new(0);
                    let add = |n| {
                        let more =
                            |updated: Updated<'_>| crossed.set(crossed.get() + updated.batches());
                        block.add_dirty(0, n, batch.cast_unsigned() - 1, more);
                        crossed.get()
                    };
                    // It also contains the halves of smaller batches.
                    let (near, far) = (batch / 4, batch * 3 / 4);
                    let steps = [near, -2 * near, near, -1, 1, far, -far, -far, -batch, batch, far];
                    assert_eq!(steps.map(add), [0, 0, 0, 0, 0, 1, 0, -1, -2, -1, 0], "{batch}");
                }
            }
        };
        std::thread::scope(|scope| scope.spawn(on_one_cpu).join().expect("no panic"));
    }

    /// Returns an area of the machine's own backend, and one of locked rows, with whether it has
    /// sequences.
    fn areas() -> [(Area, bool); 2] {
        let has_sequences = submeter_sys::probe().rseq().is_some();
        let area = Area::new(|_| 0).expect("address space");
        assert_eq!(area.rseq().is_some(), has_sequences);
        let rows = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        [(area, has_sequences), (rows, false)]
    }

    /// An add that crosses no boundary is done at once: by a sequence or one locked instruction.
    #[test]
    fn an_add_that_crosses_nothing_ends_at_once() {
        submeter_sys::set_thread_number(0);
        // A sequence may be interrupted, though not each time.
        let one_of_many = |add: &dyn Fn() -> bool| (0..100).any(|_| add());
        for (area, has_sequences) in areas() {
            let block = area.block(1).expect("room");
            let word = BlockWord::new(&block, 0);
            assert_eq!(one_of_many(&|| word.add_inside(1, 1023)), has_sequences);
            assert_eq!(one_of_many(&|| word.add_inside_locked(1, 1023)), !has_sequences);
            block.add_dirty(0, 1, 63, |_| ());
            assert_eq!(one_of_many(&|| block.add_dirty_within(0, 0, 63)), has_sequences);
            assert_eq!(one_of_many(&|| block.words().add_dirty_within(0, 0, 63)), has_sequences);
            assert_eq!(block.locked_here(0).is_some(), !has_sequences);
            // Blocks whose line is clean.
            let clean = || area.block(1).expect("room").words().add_dirty_inside(0, 1, 63);
            assert!(one_of_many(&clean));
        }
    }

    /// An add across a boundary marks the line of its word, and no locked row beside sequences.
    #[test]
    fn an_add_across_marks_the_line_of_its_word() {
        for (area, _) in areas() {
            // The first line of a word of bits, so that it has another bit than the next ones.
            let [first, block] = [1, 20].map(|words| area.block(words).expect("room"));
            first.add_dirty(0, 1, 63, |_| ());
            let before = area.rows_in_use();
            assert_eq!(block.words().add_dirty_across(13, 128, 63), 128);
            assert_eq!(area.rows_in_use(), before);
            let mut found = std::collections::BTreeSet::new();
            area.find_dirty(&super::super::Lines::All, |lines| found.extend(lines.lines()));
            assert_eq!(found, [first.first_line(), block.first_line() + 1].into());
        }
    }

    /// Words are open wherever they lie, and not many more lines.
    #[test]
    fn words_are_open_as_far_as_they_reach() {
        let area = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        let lines = if cfg!(miri) { 9 } else { 5000 };
        let words: Vec<_> = (0..2 * lines).map(|_| area.words(4).expect("room")).collect();
        words.iter().for_each(|block| block.add(3, 1));
        assert!((lines..=2 * lines + 4096).contains(&area.inner.rows.open_lines()));
    }

    /// A sequence that is disturbed too often leaves its add to a locked row.
    #[test]
    fn a_locked_add_beside_sequences_is_summed() {
        let area = Area::new(|_| 0).expect("address space");
        let block = area.block(9).expect("room");
        assert_eq!(block.words().locked_add(8, 5).1, 0);
        assert_eq!((block.sum(8), area.rows_in_use().len()), (5, area.data_rows()));
    }

    #[test]
    fn a_row_that_was_not_noted_is_not_visited() {
        let area = Area::simulated(3).expect("address space");
        let block = area.block(1).expect("room");
        Area::simulate_cpu(1);
        block.add_dirty(0, 1, 63, |_| ());
        // Nothing else does this: a mark without a record of its row.
        area.inner.dirty_bits(2).mark(block.first_line());
        let mut rows = Vec::new();
        area.find_dirty(&super::super::Lines::All, |found| rows.push(found.row));
        assert_eq!(rows, [1]);
    }

    #[test]
    #[should_panic(expected = "no such words")]
    fn a_block_lies_within_its_rows() {
        let area = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        let _ = Block::new(area, WORDS - 1, 2, 0);
    }
}
