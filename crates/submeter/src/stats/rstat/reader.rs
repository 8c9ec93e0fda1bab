//! One read: a cached total, how far it may be off, and how old it is.
//!
//! A read visits no rows, and no group but, between flushes, those above. The order of its loads is
//! what makes the bound true: when the totals are from and how many groups there are come first,
//! then the lines that are marked, the overflows in flight, the batches that were crossed, and the
//! total last. Each load says what it pairs with.

use std::ops::Range;
use std::sync::atomic::Ordering;

use submeter_percpu::dirty::Unread;
use submeter_percpu::storage::{BlockRef, LINE_WORDS};

use super::lineage::{Lineage, upward};
use super::propagate::View;
use super::{GroupStats, Rstat, flushed, rows};
use crate::metric::reading::Reading;

impl GroupStats {
    /// Reads a cached total. Visits no rows, and no group but, between flushes, those above.
    pub(crate) fn read(&self, word: usize, batch_mask: u64) -> Reading<i64> {
        self.read_words(word..word + 1, batch_mask, || self.total(word))
    }

    /// Reads the cached totals of several words, whose bound is for all of them together.
    pub(crate) fn read_many(&self, words: Range<usize>, batch_mask: u64) -> Reading<Vec<u64>> {
        self.read_words(words.clone(), batch_mask, || {
            words.clone().map(|word| self.total(word).cast_unsigned()).collect()
        })
    }

    /// Bounds what `totals` loads of `words`.
    #[inline(always)]
    pub(super) fn read_words<T>(
        &self,
        words: Range<usize>,
        batch_mask: u64,
        totals: impl Fn() -> T,
    ) -> Reading<T> {
        let rstat = &*self.rstat;
        // Before the total, so that the total is of this flush or of a later one: an age that is
        // one flush old is a true age.
        let as_of_ns = rstat.flushes.as_of_ns().max(self.as_of_ns());
        // Before the total too: groups that have left it by now are in the total.
        let population = self.population();
        // In each row, the words of each group below, and only of lines that are marked. Counted
        // until what they hold is in the totals, so that no mark out means that all that returned
        // is in `value`.
        let spanned = (words.end.div_ceil(LINE_WORDS) - words.start / LINE_WORDS) as u64;
        let most = population.saturating_mul(spanned);
        let mut compares = true;
        loop {
            let (lines, found) = match rstat.area.dirty_lines(most) {
                0 => (0, Unread::default()),
                lines if compares => {
                    let found = rstat.unread();
                    (lines.min(found.lines), found)
                }
                lines => (lines, Unread::default()),
            };
            let dirty = lines * words.len().min(LINE_WORDS) as u64;
            // Before the pending error. An add that has not posted its overflow yet keeps what
            // others add after it in the same word from overflowing: less than a batch for each.
            let in_flight = if lines == 0 { 0 } else { rstat.area.in_flight() };
            let pending = match lines {
                0 => 0,
                _ => rstat.pending_batches(self.block.block_ref(), words.clone()),
            };
            let value = totals();
            if !rstat.kept.holds(&found) {
                // A flush stores totals. Once more, and then without comparing: all marks count.
                compares = false;
                continue;
            }
            let bound = match pending {
                u32::MAX => u64::MAX,
                _ => (dirty + in_flight)
                    .saturating_mul(batch_mask)
                    .saturating_add(u64::from(pending).saturating_mul(batch_mask + 1)),
            };
            return Reading::new(value, bound, rstat.flushes.age(as_of_ns));
        }
    }

    /// The cached total.
    pub(crate) fn total(&self, word: usize) -> i64 {
        // Relaxed: in `read_words` after loads that acquire what a flush stored before its number
        // and before it released marks, and before `holds` looks again; elsewhere after a flush, or
        // with the flusher locked.
        self.shared(rows::TOTAL, word).load(Ordering::Relaxed)
    }

    /// When the last flush of just this part began, in ns after the tree's; 0 if there was none.
    fn as_of_ns(&self) -> u64 {
        // Acquire: pairs with the Release in `Rstat::note_flushed`: the total is of that flush or
        // later.
        self.shared(rows::FLUSHED, flushed::AS_OF_NS).load(Ordering::Acquire).cast_unsigned()
    }

    fn population(&self) -> u64 {
        // Acquire: see `Lineage::leave`.
        self.block.block_ref().population.load(Ordering::Acquire)
    }
}

impl Rstat {
    /// Returns how many lines at most hold something that is not in the totals.
    fn unread(&self) -> Unread {
        let view = View::of(&self.area, &self.last);
        let is_same = |row, line| view.is_same_where_there_is(row, line);
        self.kept.unread(|| self.area.dirty_lines(u64::MAX), is_same)
    }

    /// Returns the pending error of some words of a group together, in batches. To be called after
    /// the marks were counted and before the total is loaded.
    #[inline]
    fn pending_batches(&self, at: &BlockRef<Lineage>, words: Range<usize>) -> u32 {
        let since = |covered| {
            // No updater may have found a later number.
            let begun = || self.flushes.begun();
            let of = |word| self.pending_error(at, word).sum(covered, begun);
            words.clone().map(of).fold(0, u32::saturating_add)
        };
        match since(self.flushes.covered().max(self.covered(at))) {
            0 => 0,
            pending => self.pending_here(at, pending, since),
        }
    }

    /// Returns [`pending_batches`](Rstat::pending_batches) less those that a flush of a group above
    /// has taken up.
    #[inline(never)]
    fn pending_here(
        &self,
        at: &BlockRef<Lineage>,
        pending: u32,
        since: impl FnOnce(u64) -> u32,
    ) -> u32 {
        let covered = upward(at).map(|at| self.covered(at));
        covered.max().map_or(pending, since)
    }
}
