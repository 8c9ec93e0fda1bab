//! The statistics of one group: the updater's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_percpu::{Block, Word};

use super::flush::Node;
use super::{Rstat, rows};
use crate::error::Error;

/// Holds the words of a group. Dropping it hands the rest to the parent at the next flush.
pub(crate) struct Leaf {
    block: Block,
    lineage: Arc<Lineage>,
    rstat: Arc<Rstat>,
}

/// What the flusher and the carries of descendants need of a group, whoever else has let go of it.
pub(crate) struct Lineage {
    parent: Option<Arc<Lineage>>,
    /// The first word of the block.
    first_word: usize,
    /// This group and its descendants, the dying included: how many words a total is made of.
    population: AtomicU64,
}

impl Lineage {
    /// This and its ancestors.
    fn upward(&self) -> impl Iterator<Item = &Lineage> {
        std::iter::successors(Some(self), |at| at.parent.as_deref())
    }

    /// Leaves the population of itself and its ancestors.
    pub(super) fn leave(&self) {
        for at in self.upward() {
            // Release: after the flush that had its words stored the totals; pairs with the Acquire in
            // `population`, so that who counts it no more finds its words in the total.
            at.population.fetch_sub(1, Ordering::Release);
        }
    }
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
        let lineage = Arc::new(Lineage {
            parent: parent.map(|parent| Arc::clone(&parent.lineage)),
            first_word: block.first_word(),
            population: AtomicU64::new(0),
        });
        for at in lineage.upward() {
            // Relaxed: the group's own updates come later in this thread, or in one that was handed
            // the group.
            at.population.fetch_add(1, Ordering::Relaxed);
        }
        let leaf = Leaf { block, lineage, rstat: Arc::clone(rstat) };
        rstat.announce(Node::new(
            leaf.id(),
            parent.map(Leaf::id),
            leaf.block.clone(),
            Arc::clone(&leaf.lineage),
        ));
        Ok(leaf)
    }

    /// The statistics that it is a part of.
    pub(crate) fn rstat(&self) -> &Rstat {
        &self.rstat
    }

    /// The block's number among its equals; reused once the flusher has forgotten the group.
    fn id(&self) -> u32 {
        (self.block.first_line() / self.rstat.lines) as u32
    }

    /// Adds to the running CPU's word; tells the ancestors only when a batch boundary is crossed.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, n: i64, batch_mask: u64) {
        let carried = self.block.add_marked(word, n, batch_mask);
        if carried != 0 {
            self.carried(word, carried);
        }
    }

    /// Finds a word; whoever adds to it calls [`carried`](Leaf::carried) with what that returns, unless 0.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> Word<'_> {
        self.block.word(word)
    }

    /// Once in a batch: the price of a bound on reads.
    #[cold]
    #[inline(never)]
    pub(crate) fn carried(&self, word: usize, carried: i64) {
        for at in self.lineage.upward() {
            let drift = self.rstat.area.shared(rows::DRIFT, at.first_word + word);
            // SeqCst: before this update returns; pairs with the load in `Rstat::read`.
            drift.fetch_add(carried.unsigned_abs().cast_signed(), Ordering::SeqCst);
        }
    }

    /// The cached total.
    pub(crate) fn total(&self, word: usize) -> i64 {
        // SeqCst: as in `Rstat::read`.
        self.shared(rows::TOTAL, word).load(Ordering::SeqCst)
    }

    pub(super) fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.lineage.first_word + word)
    }

    pub(super) fn population(&self) -> u64 {
        // Acquire: see `Lineage::leave`.
        self.lineage.population.load(Ordering::Acquire)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until it has read them a last time.
        self.rstat.bury(self.id());
    }
}
