//! Overflows climb a tree, so that no line is written by all CPUs.

use crate::overflow::batch_overflow;
use crate::sync::atomic::{AtomicI64, Ordering};

/// Children of a node, as a power of two: 4. What the nodes may keep grows with `fan / log fan`, if
/// no line is to be busier than another: 2 gives as narrow a read as 4 for three times the nodes, 8
/// one that is a third wider.
const FAN_SHIFT: u32 = 2;

/// The nodes between the CPUs' words and the shared part. A node of level `l` takes the overflows
/// of `4^l` CPUs, and passes on what crosses `4^l` batches: each line gets as many adds as any
/// other.
#[derive(Debug)]
pub(super) struct Tree {
    levels: Box<[Level]>,
}

#[derive(Debug)]
struct Level {
    nodes: Box<[Node]>,
    /// One less than the level's batch.
    mask: u64,
}

/// A line of its own: the point of the tree. 64 bytes, not the 128 of `CachePadded`: the nodes are
/// most of what a tree weighs.
///
/// Bits: a sum of overflows of the level below; full width, never set back. Writers: overflows, by
/// locked add only.
#[derive(Debug)]
#[repr(align(64))]
struct Node(AtomicI64);

impl Tree {
    /// A tree over the words of `cpus` CPUs with batch `mask + 1`. Without a level where 4 CPUs or
    /// fewer can share the root.
    pub(super) fn new(cpus: usize, mask: u64) -> Tree {
        let (mut levels, mut below, mut mask) = (Vec::new(), cpus, mask);
        while below > 1 << FAN_SHIFT {
            below = below.div_ceil(1 << FAN_SHIFT);
            mask = mask << FAN_SHIFT | ((1 << FAN_SHIFT) - 1);
            let nodes = (0..below).map(|_| Node(AtomicI64::new(0))).collect();
            levels.push(Level { nodes, mask });
        }
        Tree { levels: levels.into() }
    }

    /// Takes the overflow of a word on `cpu`, a multiple of the counter's batch; returns what
    /// reaches the root. Any `cpu` is right; the running one is fastest.
    pub(super) fn climb(&self, cpu: usize, overflow: i64) -> i64 {
        let (mut place, mut overflow) = (cpu, overflow);
        for level in &self.levels {
            place >>= FAN_SHIFT;
            let node = &level.nodes[place % level.nodes.len()].0;
            // Relaxed: as for the posted sum; the node's own word decides what overflows.
            let before = node.fetch_add(overflow, Ordering::Relaxed);
            overflow = batch_overflow(before, overflow, level.mask);
            if overflow == 0 {
                return 0;
            }
        }
        overflow
    }

    /// The batch of the topmost nodes, of words whose batch is `mask + 1`.
    ///
    /// An add that climbs hides less than this of what others added: what it took at a level and
    /// what it carries on differ by less than that level's batch, in multiples of the batch below,
    /// and this is the sum of it all.
    #[cfg(not(loom))]
    pub(super) fn batch(&self, mask: u64) -> u64 {
        self.levels.last().map_or(mask, |level| level.mask) + 1
    }

    /// The most that the nodes keep from the root, of words whose batch is `mask + 1`. Never
    /// negative: a node keeps what is above its last boundary.
    pub(super) fn missing(&self, mask: u64) -> u64 {
        self.levels.iter().map(|level| level.nodes.len() as u64 * (level.mask - mask)).sum()
    }
}
