//! The statistics of one group: the updater's side.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_percpu::dirty::Unread;
use submeter_percpu::pending::Updated;
use submeter_percpu::storage::LINE_WORDS;
use submeter_percpu::{Block, Word};

use super::lineage::{Lineage, upward};
use super::{Rstat, flushed, rows};
use crate::error::Error;
use crate::metric::reading::Reading;
use crate::stats::flush::node_table::Birth;

/// The words of a group. Dropping it hands the rest to the parent at the next flush.
#[repr(C)]
pub(crate) struct GroupStats {
    block: Block<Lineage>,
    rstat: Arc<Rstat>,
}

impl GroupStats {
    /// Takes storage for a group below `parent`.
    pub(crate) fn new(
        rstat: &Arc<Rstat>,
        parent: Option<&GroupStats>,
    ) -> Result<GroupStats, Error> {
        rstat.admit()?;
        let block = rstat.area.block(rstat.words).map_err(|cause| {
            // Relaxed: see `admit`.
            rstat.len.fetch_sub(1, Ordering::Relaxed);
            Error::storage(cause)
        })?;
        let block = block.with(Lineage {
            parent: parent.map(|parent| parent.block.block_ref().clone()),
            population: AtomicU64::new(0),
        });
        for at in upward(block.block_ref()) {
            // Relaxed: the group's own updates come later in this thread, or in one that was handed
            // the group.
            at.population.fetch_add(1, Ordering::Relaxed);
        }
        let stats = GroupStats { block, rstat: Arc::clone(rstat) };
        let (id, parent) = (stats.id(), parent.map(GroupStats::id));
        rstat.announce(Birth { id, parent, kept: stats.block.block_ref().clone() });
        Ok(stats)
    }

    /// The statistics that it is a part of.
    pub(crate) fn rstat(&self) -> &Rstat {
        &self.rstat
    }

    /// The block's number among its equals; reused once the flusher has forgotten the group.
    pub(crate) fn id(&self) -> u32 {
        (self.block.first_line() / self.rstat.lines) as u32
    }

    /// Adds to the running CPU's word; raises the ancestors' pending error only when a batch
    /// boundary is crossed.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, n: i64, batch_mask: u64) {
        if !self.block.add_dirty_within(word, n, batch_mask) {
            self.add_otherwise(word, n, batch_mask);
        }
    }

    /// As [`add`](Self::add), and calls `then` after it has crossed a boundary.
    #[inline(always)]
    pub(crate) fn add_then(&self, word: usize, n: i64, batch_mask: u64, then: impl FnOnce()) {
        if !self.block.add_dirty_within(word, n, batch_mask) {
            let crossed = |batches| {
                self.crossed(word, batches);
                then();
            };
            self.block.add_dirty_otherwise(word, n, batch_mask, crossed);
        }
    }

    /// The least that a caller must have at hand for what is rare: each argument more is a register
    /// less for those that add in line.
    #[cold]
    #[inline(never)]
    fn add_otherwise(&self, word: usize, n: i64, batch_mask: u64) {
        let crossed = |batches| self.crossed(word, batches);
        self.block.add_dirty_otherwise(word, n, batch_mask, crossed);
    }

    /// Finds a word; how many batches an add to it crosses goes to
    /// [`crossed`](GroupStats::crossed).
    #[inline]
    pub(crate) fn word(&self, word: usize) -> Word<'_> {
        self.block.word(word)
    }

    /// The sum of a word over all CPUs: this group's own part. Concurrent adds are in it or
    /// not, each for itself.
    pub(crate) fn own(&self, word: usize) -> i64 {
        self.block.sum(word)
    }

    /// Once in a batch: the price of a bound on reads.
    #[cold]
    #[inline(never)]
    pub(crate) fn crossed(&self, word: usize, batches: i64) {
        // So much and more is the most that a pending error can be, which makes bounds meaningless
        // until the next flush.
        let batches = u32::try_from(batches.unsigned_abs()).unwrap_or(u32::MAX);
        self.rstat.raise(self.block.block_ref(), word, batches, Updated::fenced());
    }

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

    #[cfg(test)]
    pub(super) fn block(&self) -> &Block<Lineage> {
        &self.block
    }

    fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.block.first_word() + word)
    }

    /// When the last flush of just this part began, in ns after the tree's; 0 if there was none.
    fn as_of_ns(&self) -> u64 {
        // Acquire: pairs with the Release in `Rstat::note_flushed`: the total is of that flush or
        // later.
        self.shared(rows::FLUSHED, flushed::AS_OF_NS).load(Ordering::Acquire).cast_unsigned()
    }

    /// Whether it is the root.
    pub(super) fn is_root(&self) -> bool {
        self.block.block_ref().parent.is_none()
    }

    fn population(&self) -> u64 {
        // Acquire: see `Lineage::leave`.
        self.block.block_ref().population.load(Ordering::Acquire)
    }
}

impl Drop for GroupStats {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until it has read them a last time.
        self.rstat.bury(self.id());
    }
}
