//! What keeps the statistics of a tree: five designs of Linux's, an atomic add a level, and
//! submeter.

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

/// One leaf at a time, and flushed, with the lock held.
pub(super) type Before = Lists<PopLeaf, Near>;
/// The list is built with the lock held, and flushed after.
pub(super) type Patch1 = Lists<PopList, Near>;
/// The list is built parents first, each node visited once.
pub(super) type Patch1To2 = Lists<PushChildren<false>, Near>;
/// And what a flush writes is off the line that updates read.
pub(super) type Patch1To3 = Lists<PushChildren<false>, CachePadded<lists::Scratch>>;
/// The reviewer's proposal: doubly linked lists.
pub(super) type DoublyLinked = Lists<ListHead, Near>;

/// A parent that there is not: the root's.
pub(super) const NONE: u32 = u32::MAX;

/// The groups and what is counted of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Each group's parent; the root has none.
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

    /// Returns how many groups there are.
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

/// Keeps the statistics of a tree. One thread of each CPU updates.
pub(super) trait Design: Sized + Send + Sync + 'static {
    /// What a thread has to know of its CPU.
    type Seat: Copy + Send;

    /// What remembering that a group changed takes for each CPU.
    fn mark_bytes(shape: &Shape) -> f64;

    /// Makes one for `shape`, with nothing counted.
    ///
    /// # Errors
    /// When there is no address space for per-CPU words.
    fn new(shape: &Shape) -> io::Result<Self>;

    /// Says where the calling thread updates, once it is pinned to its CPU.
    ///
    /// # Errors
    /// When there is no room for it.
    fn sit(&self) -> io::Result<Self::Seat>;

    /// Adds to a metric of a group. Ancestors need not know at once.
    fn update(&self, seat: Self::Seat, group: u32, metric: usize, n: i64);

    /// Brings totals of a subtree up to date. Appends how long each lock was held that an update
    /// may wait for, and returns how many nodes were flushed: where each CPU has a list, a group is
    /// a node for each of them.
    fn flush(&self, root: u32, holds_ns: &mut Vec<u64>) -> u64;

    /// Flushes what updates have told of and what they have not, once all are over: a look without
    /// a lock may have missed that its node was just taken off the list.
    fn settle(&self);

    /// Returns the total of a group and what is below it, as the last flush left it.
    fn total(&self, group: u32, metric: usize) -> i64;
}
