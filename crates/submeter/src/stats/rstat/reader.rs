//! One read: a cached total, its error bound, and its age.
//!
//! [`GroupStats::read`] visits no rows and, between flushes, no groups but those above it. It is
//! all here except for the protocols that it takes part in: [`KeptView`] for lines that are marked
//! and unchanged, [`pending`](submeter_percpu::pending) for crossed batches, and [`Coalescer`] for
//! the time of totals.
//!
//! # The bound
//! A total is exact if the only marked lines are kept lines that have not changed since they were
//! last read, and no flush has begun to change totals by the time that the total is loaded (if one
//! has, all marks count). Otherwise it lacks the batches that were crossed since the last flush
//! began (the *pending error*, which the crossing updaters add to and no flush has to reset:
//! [`Pending`]), plus less than a batch for each line that may hold more. Those are the marked
//! lines, and in each row no more than there are groups below. An add that has crossed a boundary
//! but not posted that yet (it is in flight) may hide as much again.
//!
//! This holds wherever the boundaries lie: a word that crosses `c` boundaries between two looks has
//! moved by less than `c + 1` batches, since it may go from one end of a batch to the other. No
//! bound that knows only `c` is tighter. That boundaries lie half a batch away from 0
//! ([`CENTRE`](submeter_sys::CENTRE)) changes how often words cross, not what a crossing means, as
//! long as the updater that posts a crossing uses the boundaries of the sequence that refused the
//! add.
//!
//! # The order of loads
//! The order makes the bound true. The time of the totals and the number of groups come first, then
//! the marked lines, the overflows in flight, the crossed batches, and the total last. The comment
//! at each load says what it pairs with.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[cfg(doc)]
use submeter_percpu::dirty::KeptView;
use submeter_percpu::dirty::Unread;
use submeter_percpu::pending::{Noted, Pending};
use submeter_percpu::storage::{BlockRef, LINE_WORDS};

use super::{GroupStats, Rstat, flushed, rows};
use crate::metric::reading::Reading;
#[cfg(doc)]
use crate::stats::flush::coalescer::Coalescer;

impl GroupStats {
    /// Reads a cached total. Visits no rows and, between flushes, no groups but those above.
    pub(crate) fn read(&self, word: usize, batch_mask: u64) -> Reading<i64> {
        self.read_words(word..word + 1, batch_mask, || self.total(word))
    }

    /// Reads the cached totals of several words, with one bound for all of them together.
    pub(crate) fn read_many(&self, words: Range<usize>, batch_mask: u64) -> Reading<Vec<u64>> {
        self.read_words(words.clone(), batch_mask, || {
            words.clone().map(|word| self.total(word).cast_unsigned()).collect()
        })
    }

    /// Reads the totals that `totals` loads, and bounds the error of `words`.
    #[inline(always)]
    pub(super) fn read_words<T>(
        &self,
        words: Range<usize>,
        batch_mask: u64,
        totals: impl Fn() -> T,
    ) -> Reading<T> {
        let rstat = &*self.rstat;
        // Before the total, so that the total is from this flush or a later one: an age that is too
        // high by a flush is still a true bound.
        let as_of_ns = rstat.flushes.as_of_ns();
        // Acquire: pairs with the Release in `Rstat::note_flushed`. 0 if this part was never
        // flushed by itself.
        let part = self.shared(rows::FLUSHED, flushed::AS_OF_NS).load(Ordering::Acquire);
        let as_of_ns = as_of_ns.max(part.cast_unsigned());
        // Also before the total: the counts of groups that have left by now are in the total.
        // Acquire: see `Lineage::leave`.
        let population = self.block.block_ref().population.load(Ordering::Acquire);
        // In each row, the words of each group below, and only those of marked lines. Marks count
        // until the totals include what their lines hold, so if no line is marked, `value` includes
        // every update that returned.
        let spanned = (words.end.div_ceil(LINE_WORDS) - words.start / LINE_WORDS) as u64;
        let most = population.saturating_mul(spanned);
        let mut compares = true;
        loop {
            let (lines, found) = match rstat.area.dirty_lines(most) {
                0 => (0, Unread::default()),
                lines if compares => {
                    let found = rstat.unread(|| rstat.area.dirty_lines(u64::MAX));
                    (lines.min(found.lines), found)
                }
                lines => (lines, Unread::default()),
            };
            let dirty = lines * words.len().min(LINE_WORDS) as u64;
            // Before the pending error. While an add has not posted its overflow yet, later adds to
            // the same word do not overflow: less than a batch for each such add.
            let in_flight = if lines == 0 { 0 } else { rstat.area.in_flight() };
            let pending = match lines {
                0 => 0,
                _ => rstat.pending_batches(self.block.block_ref(), words.clone()),
            };
            let value = totals();
            if !rstat.kept.holds(&found) {
                // A flush is storing totals. Try again, this time without comparing: all marks
                // count.
                compares = false;
                continue;
            }
            let bound = match pending {
                u32::MAX => u64::MAX,
                _ => (dirty + in_flight)
                    .saturating_mul(batch_mask)
                    .saturating_add(u64::from(pending).saturating_mul(batch_mask + 1)),
            };
            return Reading { value, max_error: bound, age: rstat.flushes.age(as_of_ns) };
        }
    }

    /// Returns the cached total.
    pub(crate) fn total(&self, word: usize) -> i64 {
        // Relaxed: in `read_words` after loads that acquire what a flush stored before its number
        // and before it released marks, and before `holds` looks again; elsewhere after a flush, or
        // with the flusher locked.
        self.shared(rows::TOTAL, word).load(Ordering::Relaxed)
    }

    fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.block.first_word() + word)
    }
}

impl Rstat {
    /// Returns an upper bound on the number of lines with something that is not in the totals: the
    /// marks, which `count` counts, less those of kept lines that have not changed since they were
    /// last read.
    pub(super) fn unread(&self, count: impl FnOnce() -> u64) -> Unread {
        let (data, last) = (self.area.data(), self.last.lines());
        // A number may belong to no line, or to none any longer: the slot it came from may be torn.
        let is_same =
            |row, line| data.has(row, line) && data.is_line(row, line, last.line(row, line));
        self.kept.unread(count, is_same)
    }

    /// Returns the pending error of some words of a group together, in batches. Call it after the
    /// marks were counted and before the total is loaded.
    #[inline]
    fn pending_batches(&self, at: &BlockRef<Lineage>, words: Range<usize>) -> u32 {
        let since = |covered| {
            // No updater can have seen a later number.
            let begun = || self.flushes.begun();
            let of = |word| self.pending_error(at.first_line(), word).sum(covered, begun);
            words.clone().map(of).fold(0, u32::saturating_add)
        };
        match since(self.flushes.covered().max(self.covered(at.first_line()))) {
            0 => 0,
            pending => self.pending_here(at, pending, since),
        }
    }

    /// Returns [`pending_batches`](Rstat::pending_batches) less the batches that a flush of a group
    /// above has included.
    #[inline(never)]
    fn pending_here(
        &self,
        at: &BlockRef<Lineage>,
        pending: u32,
        since: impl FnOnce(u64) -> u32,
    ) -> u32 {
        let covered = at.path.iter().map(|&line| self.covered(line as usize));
        covered.max().map_or(pending, since)
    }

    /// Returns the words of [`flushed`], by the first line of a group's block.
    #[inline]
    pub(super) fn flushed_line(&self, line: usize) -> &[AtomicI64; LINE_WORDS] {
        &self.area.shared_lines(rows::FLUSHED)[line]
    }

    /// Returns the number of the last complete flush of just this part.
    #[inline]
    pub(super) fn covered(&self, line: usize) -> u64 {
        noted(self.flushed_line(line)).covered()
    }

    /// Returns the pending error of a word, by the first line of a group's block: see [`Pending`].
    #[inline]
    pub(super) fn pending_error(&self, line: usize, word: usize) -> Pending<'_> {
        let at = line * LINE_WORDS + word;
        Pending(rows::PENDING_ERROR.map(|row| self.area.shared(row, at)))
    }
}

/// Returns the flush numbers in a line of [`rows::FLUSHED`].
#[inline]
pub(super) fn noted(words: &[AtomicI64; LINE_WORDS]) -> Noted<'_> {
    Noted([flushed::BEGUN, flushed::COVERED, flushed::TURN].map(|at| &words[at]))
}

/// The part of a group that the flusher and the overflows of descendants need, even when nothing
/// else holds it. It is in a `BlockRef` with its block's words, whose index they need as well.
pub(crate) struct Lineage {
    pub(super) parent: Option<BlockRef<Lineage>>,
    /// The first lines of the groups above, the root's first, and its own. A crossing finds all of
    /// them here: from parent to parent, it would wait for one line of memory after the other.
    pub(super) path: Box<[u32]>,
    /// Number of groups here and below, including dying ones: how many words a total is made of.
    pub(super) population: AtomicU64,
}

impl Lineage {
    /// Leaves the population of itself and its ancestors.
    pub(super) fn leave(this: &BlockRef<Lineage>) {
        for at in upward(this) {
            // Release: after the flush that read its words stored the totals; pairs with the
            // Acquire in `read_words`, so that a reader that no longer counts the group finds its
            // words in the total.
            at.population.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Returns a group and its ancestors.
pub(super) fn upward(lineage: &BlockRef<Lineage>) -> impl Iterator<Item = &BlockRef<Lineage>> {
    std::iter::successors(Some(lineage), |at| at.parent.as_ref())
}
