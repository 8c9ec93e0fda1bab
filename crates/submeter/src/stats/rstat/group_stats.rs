//! The statistics of one group: the updater's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_percpu::pending::Updated;
use submeter_percpu::{Block, Word};

use super::Rstat;
use super::lineage::{Lineage, upward};
use crate::error::Error;
use crate::stats::flush::node_table::Birth;

/// The words of a group. Dropping it hands the rest to the parent at the next flush.
#[repr(C)]
pub(crate) struct GroupStats {
    pub(super) block: Block<Lineage>,
    pub(super) rstat: Arc<Rstat>,
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
        if !self.add_within(word, n, batch_mask) {
            self.add_otherwise(word, n, batch_mask, || ());
        }
    }

    /// Adds to the running CPU's word, unless that may cross a batch boundary: then it returns
    /// false, and [`add_otherwise`](Self::add_otherwise) is to add.
    #[inline(always)]
    pub(crate) fn add_within(&self, word: usize, n: i64, batch_mask: u64) -> bool {
        self.block.add_dirty_within(word, n, batch_mask)
    }

    /// Adds, and calls `then` after a boundary was crossed. The least that a caller must have at
    /// hand for what is rare: each argument more is a register less for those that add in line.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_otherwise(&self, word: usize, n: i64, batch_mask: u64, then: impl FnOnce()) {
        let crossed = |updated: Updated<'_>| {
            self.crossed(word, &updated);
            then();
        };
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
    pub(crate) fn crossed(&self, word: usize, updated: &Updated<'_>) {
        // So much and more is the most that a pending error can be, which makes bounds meaningless
        // until the next flush.
        let batches = u32::try_from(updated.batches().unsigned_abs()).unwrap_or(u32::MAX);
        self.rstat.raise(self.block.block_ref(), word, batches, updated);
    }

    #[cfg(test)]
    pub(super) fn block(&self) -> &Block<Lineage> {
        &self.block
    }

    pub(super) fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.block.first_word() + word)
    }

    /// Whether it is the root.
    pub(super) fn is_root(&self) -> bool {
        self.block.block_ref().parent.is_none()
    }
}

impl Drop for GroupStats {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until it has read them a last time.
        self.rstat.bury(self.id());
    }
}
