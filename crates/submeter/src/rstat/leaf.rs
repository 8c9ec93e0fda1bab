//! The statistics of one group: the updater's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_percpu::storage::{Kept, LINE_WORDS};
use submeter_percpu::{Block, Word};

use super::nodes::Birth;
use super::{Rstat, rows};
use crate::error::Error;

/// Holds the words of a group. Dropping it hands the rest to the parent at the next flush.
pub(crate) struct Leaf {
    block: Block<Lineage>,
    rstat: Arc<Rstat>,
}

/// An update by this much makes bounds meaningless until the next flush, instead of the drift wrap around.
const WILD: u64 = 1 << 47;
/// So does a drift of this much. It cannot wrap around from here before somebody says so: that takes
/// 98,304 threads between two instructions.
const DRIFT_MAX: u64 = 1 << 62;

/// What the flusher and the carries of descendants need of a group, whoever else has let go of it. Kept
/// with its block's words, whose index they need as well.
pub(crate) struct Lineage {
    parent: Option<Kept<Lineage>>,
    /// This group and its descendants, the dying included: how many words a total is made of.
    population: AtomicU64,
}

impl Lineage {
    /// Leaves the population of itself and its ancestors.
    pub(super) fn leave(this: &Kept<Lineage>) {
        for at in upward(this) {
            // Release: after the flush that had its words stored the totals; pairs with the Acquire in
            // `population`, so that who counts it no more finds its words in the total.
            at.population.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A group and its ancestors.
fn upward(lineage: &Kept<Lineage>) -> impl Iterator<Item = &Kept<Lineage>> {
    std::iter::successors(Some(lineage), |at| at.parent.as_ref())
}

impl Leaf {
    /// Takes storage for a group below `parent`.
    pub(crate) fn new(rstat: &Arc<Rstat>, parent: Option<&Leaf>) -> Result<Leaf, Error> {
        rstat.admit()?;
        let block = rstat.area.block(rstat.words).map_err(|cause| {
            // Relaxed: see `admit`.
            rstat.len.fetch_sub(1, Ordering::Relaxed);
            Error::storage(cause)
        })?;
        let block = block.with(Lineage {
            parent: parent.map(|parent| parent.block.keep()),
            population: AtomicU64::new(0),
        });
        for at in upward(block.kept()) {
            // Relaxed: the group's own updates come later in this thread, or in one that was handed
            // the group.
            at.population.fetch_add(1, Ordering::Relaxed);
        }
        let leaf = Leaf { block, rstat: Arc::clone(rstat) };
        let (id, parent) = (leaf.id(), parent.map(Leaf::id));
        rstat.announce(Birth { id, parent, kept: leaf.block.keep() });
        Ok(leaf)
    }

    /// The statistics that it is a part of.
    pub(crate) fn rstat(&self) -> &Rstat {
        &self.rstat
    }

    /// The block's number among its equals; reused once the flusher has forgotten the group.
    pub(super) fn id(&self) -> u32 {
        (self.block.first_line() / self.rstat.lines) as u32
    }

    /// Adds to the running CPU's word; tells the ancestors only when a batch boundary is crossed.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, n: i64, batch_mask: u64) {
        self.block.add_marked(word, n, batch_mask, move |carried| self.carried(word, carried));
    }

    /// Finds a word; what an add to it carries goes to [`carried`](Leaf::carried).
    #[inline]
    pub(crate) fn word(&self, word: usize) -> Word<'_> {
        self.block.word(word)
    }

    /// Once in a batch: the price of a bound on reads.
    #[cold]
    #[inline(never)]
    pub(crate) fn carried(&self, word: usize, carried: i64) {
        let carried = carried.unsigned_abs();
        if carried >= WILD {
            // SeqCst: before this update returns; pairs with the load in `Rstat::read`.
            self.rstat.wild.fetch_add(1, Ordering::SeqCst);
        }
        for at in upward(self.block.kept()) {
            let at = at.first_word() + word;
            let drift = self.rstat.area.shared(rows::DRIFT, at);
            // SeqCst: before this update returns; pairs with the load in `Rstat::read`. Before the look at
            // the mark: a flush takes the mark, then loads.
            let before = drift.fetch_add(carried.cast_signed(), Ordering::SeqCst).cast_unsigned();
            if before >= DRIFT_MAX {
                // SeqCst: as above.
                self.rstat.wild.fetch_add(1, Ordering::SeqCst);
            }
            self.rstat.area.mark_shared(rows::DRIFT, at / LINE_WORDS);
        }
    }

    /// The cached total.
    pub(crate) fn total(&self, word: usize) -> i64 {
        // Relaxed: as in `Rstat::read`.
        self.shared(rows::TOTAL, word).load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn block(&self) -> &Block<Lineage> {
        &self.block
    }

    pub(super) fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.block.first_word() + word)
    }

    /// When the last flush of just this part began, in ns after the tree's; 0 if there was none.
    pub(super) fn as_of_ns(&self) -> u64 {
        // Acquire: pairs with the Release in `Rstat::note_flushed`: the total is of that flush or later.
        self.shared(rows::FLUSHED, 0).load(Ordering::Acquire).cast_unsigned()
    }

    /// Whether it is the root.
    pub(super) fn is_root(&self) -> bool {
        self.block.kept().parent.is_none()
    }

    pub(super) fn population(&self) -> u64 {
        // Acquire: see `Lineage::leave`.
        self.block.kept().population.load(Ordering::Acquire)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until it has read them a last time.
        self.rstat.bury(self.id());
    }
}
