//! A group and its ancestors, as those need them who outlive its handles.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter_percpu::storage::BlockRef;

/// The part of a group that the flusher and the overflows of descendants need, even when nothing
/// else holds it. BlockRef with its block's words, whose index they need as well.
pub(crate) struct Lineage {
    pub(super) parent: Option<BlockRef<Lineage>>,
    /// This group and its descendants, the dying included: how many words a total is made of.
    pub(super) population: AtomicU64,
}

impl Lineage {
    /// Leaves the population of itself and its ancestors.
    pub(super) fn leave(this: &BlockRef<Lineage>) {
        for at in upward(this) {
            // Release: after the flush that had its words stored the totals; pairs with the Acquire
            // in `GroupStats::population`, so that a reader which no longer counts it finds its
            // words in the total.
            at.population.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A group and its ancestors.
pub(super) fn upward(lineage: &BlockRef<Lineage>) -> impl Iterator<Item = &BlockRef<Lineage>> {
    std::iter::successors(Some(lineage), |at| at.parent.as_ref())
}
