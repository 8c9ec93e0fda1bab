//! The designs that keep the statistics of a tree: five from Linux's patches and their review, an
//! atomic add per level, and submeter.

mod control;
mod list_head;
mod lists;
mod singly;
mod submeter;
#[cfg(test)]
mod tests;
mod walk_up;

use std::io;

use crossbeam_utils::CachePadded;

pub(super) use control::Control;
pub(super) use list_head::ListHead;
pub(super) use lists::{Lists, Near};
pub(super) use singly::{PopLeaf, PopList, PushChildren};
pub(super) use submeter::Submeter;
pub(super) use walk_up::WalkUp;

/// Leaves are popped one at a time and flushed with the lock held.
pub(super) type Before = Lists<PopLeaf, Near>;
/// The list is built with the lock held, and flushed afterwards.
pub(super) type Patch1 = Lists<PopList, Near>;
/// The list is built parents first, each node visited once.
pub(super) type Patch1To2 = Lists<PushChildren<false>, Near>;
/// In addition, the fields that a flush writes are off the line that updates read.
pub(super) type Patch1To3 = Lists<PushChildren<false>, CachePadded<lists::Scratch>>;
/// The reviewer's proposal: doubly linked lists.
pub(super) type DoublyLinked = Lists<ListHead, Near>;

/// The parent of the root, which has none.
pub(super) const NONE: u32 = u32::MAX;

/// The groups, and how many metrics each has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Each group's parent; `NONE` for the root.
    pub(super) parents: Vec<u32>,
    /// Each group's absolute path.
    pub(super) paths: Vec<String>,
    /// How many metrics each group has.
    pub(super) metrics: usize,
}

impl Shape {
    /// Returns a tree in which every group of a level has ten children: 1 + 10 + 100 + 1,000.
    pub(super) fn tens(metrics: usize) -> Shape {
        let mut shape = Shape { parents: vec![NONE], paths: vec!["/".to_owned()], metrics };
        for parent in 0..111_u32 {
            for child in 0..10 {
                let above = shape.paths[parent as usize].trim_end_matches('/');
                shape.paths.push(format!("{above}/{child}"));
                shape.parents.push(parent);
            }
        }
        shape
    }

    /// Returns the number of groups.
    pub(super) fn groups(&self) -> usize {
        self.parents.len()
    }

    /// Returns the group without a parent.
    pub(super) fn root(&self) -> u32 {
        let root = self.parents.iter().position(|parent| *parent == NONE);
        root.expect("a tree has a root") as u32
    }

    /// Returns a group and its ancestors, from itself upward.
    pub(super) fn upward(&self, group: u32) -> impl Iterator<Item = u32> {
        let above = |at: &u32| Some(self.parents[*at as usize]).filter(|&parent| parent != NONE);
        std::iter::successors(Some(group), above)
    }
}

/// A design that keeps the statistics of a tree. One thread per CPU updates.
pub(super) trait Design: Sized + Send + Sync + 'static {
    /// The place where a thread updates, which depends on its CPU.
    type Slot: Copy + Send;

    /// Returns the bytes per group and CPU for marking a group as changed.
    fn mark_bytes(shape: &Shape) -> f64;

    /// Makes one for `shape`, with nothing counted.
    ///
    /// # Errors
    /// When there is no address space for per-CPU words.
    fn new(shape: &Shape) -> io::Result<Self>;

    /// Registers the calling thread, which must be pinned to its CPU, and returns the place where
    /// it updates.
    ///
    /// # Errors
    /// When there is no room for it.
    fn register(&self) -> io::Result<Self::Slot>;

    /// Adds to a metric of a group. Ancestors may be updated later.
    fn update(&self, slot: Self::Slot, group: u32, metric: usize, n: i64);

    /// Brings the totals of a subtree up to date. Appends the hold time of each lock that an update
    /// may wait for, and returns how many nodes were flushed: in a design with a list per CPU, a
    /// group is one node on each list.
    fn flush(&self, root: u32, holds_ns: &mut Vec<u64>) -> u64;

    /// Flushes everything once all updates are over, including updates that are on no list: an
    /// update that checks its node without the lock may miss that the node was just taken off.
    fn settle(&self);

    /// Returns the total of a group and its descendants as of the last flush.
    fn total(&self, group: u32, metric: usize) -> i64;
}
