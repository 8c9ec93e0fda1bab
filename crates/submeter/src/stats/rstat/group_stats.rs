//! The statistics of one group: the updater's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter_percpu::Block;
use submeter_percpu::pending::{Collections, Updated};

use super::{Lineage, Rstat, noted, upward};
use crate::error::Error;
use crate::stats::flush::node_table::Birth;

/// The words of a group. After a drop, the next flush hands what remains to the parent.
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
        let above = parent.map(|parent| parent.block.block_ref());
        let lines = above.map_or(&[][..], |above| &above.path).iter().copied();
        let own = u32::try_from(block.first_line()).expect("a row has fewer lines than 2^24");
        let block = block.with(Lineage {
            path: lines.chain([own]).collect(),
            parent: above.cloned(),
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

    /// Returns the statistics that it is a part of.
    pub(crate) fn rstat(&self) -> &Rstat {
        &self.rstat
    }

    /// Returns the block's number among the blocks, which is reused once the flusher has forgotten
    /// the group.
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
    /// false, and the caller must use [`add_otherwise`](Self::add_otherwise).
    #[inline(always)]
    pub(crate) fn add_within(&self, word: usize, n: i64, batch_mask: u64) -> bool {
        self.block.add_dirty_within(word, n, batch_mask)
    }

    /// Adds, and calls `then` if a boundary was crossed. Takes as few arguments as possible for the
    /// rare case: each further argument would cost the inlined fast path a register.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_otherwise(&self, word: usize, n: i64, batch_mask: u64, then: impl FnOnce()) {
        let crossed = |updated: Updated<'_>| {
            self.crossed(word, &updated);
            then();
        };
        self.block.add_dirty_otherwise(word, n, batch_mask, crossed);
    }

    /// Returns the sum of a word over all CPUs: this group's own part. Each concurrent add may or
    /// may not be included.
    pub(crate) fn own(&self, word: usize) -> i64 {
        self.block.sum(word)
    }

    /// Raises the pending error, once in a batch: the price of a bound on reads.
    #[cold]
    #[inline(never)]
    pub(super) fn crossed(&self, word: usize, updated: &Updated<'_>) {
        // Saturates: the largest pending error makes bounds meaningless until the next flush.
        let batches = u32::try_from(updated.batches().unsigned_abs()).unwrap_or(u32::MAX);
        self.rstat.raise(&self.block.block_ref().path, word, batches, updated);
    }

    #[cfg(test)]
    pub(super) fn block(&self) -> &Block<Lineage> {
        &self.block
    }

    /// Returns whether it is the root.
    pub(super) fn is_root(&self) -> bool {
        self.block.block_ref().parent.is_none()
    }
}

impl Rstat {
    /// Returns the flushes of a group, given those of the groups above it.
    fn flushes_of(&self, above: Collections, line: u32, updated: &Updated<'_>) -> Collections {
        let own = noted(self.flushed_line(line as usize)).collections(updated);
        Collections {
            begun: above.begun.max(own.begun),
            covered: above.covered.max(own.covered),
            turn: above.turn.wrapping_add(own.turn),
        }
    }

    /// Adds `batches` to the pending error of a word in all groups of a path.
    fn raise(&self, path: &[u32], word: usize, batches: u32, updated: &Updated<'_>) {
        // All lines at once: the locked instructions below would wait for one after the other.
        for &line in path {
            std::hint::black_box(self.covered(line as usize));
            self.pending_error(line as usize, word).request();
        }
        let of = |above, &line: &u32| self.flushes_of(above, line, updated);
        // The root first: which flushes apply to a group depends on those of the groups above it.
        let mut flushes = Collections::default();
        for (n, line) in path.iter().enumerate() {
            flushes = of(flushes, line);
            let again = || path[..=n].iter().fold(Collections::default(), of);
            self.pending_error(*line as usize, word).add(flushes, batches, again);
        }
    }
}

impl Drop for GroupStats {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until the flusher has read them for the
        // last time.
        self.rstat.bury(self.id());
    }
}
