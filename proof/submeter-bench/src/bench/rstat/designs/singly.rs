//! Updated trees of singly linked lists, and the two ways to empty them.
//!
//! Written from the description that came with the patches. A node is on the list when it has a
//! next node: its sibling or, for the last one, its parent; the root's next is the root. A node
//! without updated children is its own first child.

use std::sync::atomic::{AtomicU32, Ordering};

use super::NONE;
use super::lists::UpdatedTree;

/// A node on one CPU. Written with the CPU's lock held; aligned, because in Linux too a node has
/// cache lines of its own, with its statistics.
#[repr(align(64))]
pub(in crate::bench::rstat) struct Node {
    /// The first updated child, or the node itself.
    children: AtomicU32,
    /// The next node on the same list, or `NONE`.
    next: AtomicU32,
}

/// The nodes of one CPU.
pub(in crate::bench::rstat) struct Singly(Vec<Node>);

impl Singly {
    fn new(groups: usize) -> Singly {
        let node = |group| Node { children: AtomicU32::new(group), next: AtomicU32::new(NONE) };
        Singly((0..groups as u32).map(node).collect())
    }

    fn children(&self, group: u32) -> u32 {
        // Relaxed: with the lock held.
        self.0[group as usize].children.load(Ordering::Relaxed)
    }

    fn set_children(&self, group: u32, child: u32) {
        // Relaxed: with the lock held.
        self.0[group as usize].children.store(child, Ordering::Relaxed);
    }

    fn next(&self, group: u32) -> u32 {
        // Relaxed: with the lock held or, in `is_on`, a guess that the lock confirms.
        self.0[group as usize].next.load(Ordering::Relaxed)
    }

    fn set_next(&self, group: u32, next: u32) {
        // Relaxed: with the lock held; a check without it may be out of date, as in Linux.
        self.0[group as usize].next.store(next, Ordering::Relaxed);
    }

    #[inline]
    fn is_on(&self, group: u32) -> bool {
        self.next(group) != NONE
    }

    /// Puts a node and those of its ancestors that are not there yet on the list, from the bottom
    /// up.
    fn link(&self, parents: &[u32], group: u32) {
        let mut at = group;
        while !self.is_on(at) {
            let parent = parents[at as usize];
            if parent == NONE {
                self.set_next(at, at);
                return;
            }
            self.set_next(at, self.children(parent));
            self.set_children(parent, at);
            at = parent;
        }
    }

    /// Removes a node from its parent's list, which has to be searched; returns how many nodes were
    /// visited.
    fn unlink(&self, parents: &[u32], group: u32) -> u64 {
        let parent = parents[group as usize];
        let mut visits = 0;
        if parent != NONE {
            let after = self.next(group);
            let mut at = self.children(parent);
            if at == group {
                self.set_children(parent, after);
            } else {
                while self.next(at) != group {
                    at = self.next(at);
                    visits += 1;
                }
                self.set_next(at, after);
            }
        }
        self.set_next(group, NONE);
        visits
    }

    /// Removes the first leaf below `root` after `last`, and finally `root` itself; returns how
    /// many nodes were visited.
    fn pop(&self, parents: &[u32], root: u32, last: Option<u32>) -> (Option<u32>, u64) {
        let from = match last {
            None if !self.is_on(root) => return (None, 1),
            None => root,
            Some(last) if last == root => return (None, 0),
            Some(last) => parents[last as usize],
        };
        let (mut at, mut visits) = (from, 1);
        while self.children(at) != at {
            at = self.children(at);
            visits += 1;
        }
        visits += self.unlink(parents, at);
        (Some(at), visits)
    }

    fn pop_all(&self, parents: &[u32], root: u32, each: &mut impl FnMut(u32)) -> u64 {
        let (mut last, mut visits) = (None, 0);
        loop {
            let (popped, looked) = self.pop(parents, root, last);
            visits += looked;
            let Some(group) = popped else { return visits };
            each(group);
            last = popped;
        }
    }

    /// Yields the updated children of `parent`, each before its own children, and empties the list;
    /// returns how many nodes' lists were visited. `TYPO` compares as the first version of the
    /// patch did.
    fn push_children<const TYPO: bool>(&self, parent: u32, each: &mut impl FnMut(u32)) -> u64 {
        let mut visits = 1;
        let mut child = self.children(parent);
        self.set_children(parent, parent);
        while child != parent {
            each(child);
            let other = if TYPO { parent } else { child };
            if self.children(child) != other {
                visits += self.push_children::<TYPO>(child, each);
            }
            let next = self.next(child);
            self.set_next(child, NONE);
            child = next;
        }
        visits
    }

    #[cfg(test)]
    fn is_consistent(&self, parents: &[u32]) -> Result<(), String> {
        for group in 0..parents.len() as u32 {
            let mut child = self.children(group);
            while child != group {
                if parents[child as usize] != group || !self.is_on(child) || !self.is_on(group) {
                    return Err(format!("{child} is wrong on the list of {group}"));
                }
                child = self.next(child);
            }
        }
        Ok(())
    }
}

/// Before the patches: leaf by leaf, each flushed before the search for the next.
pub(in crate::bench::rstat) struct PopLeaf(Singly);
/// The first patch: leaf by leaf onto a list that is flushed after the lock is released.
pub(in crate::bench::rstat) struct PopList(Singly);
/// The second patch: parents before their children to the front of the list, so that each is
/// visited once.
pub(in crate::bench::rstat) struct PushChildren<const TYPO: bool>(Singly);

macro_rules! updated_tree {
    ([$($of:tt)*] $name:ty, $flushes:expr, $parents_first:expr, $detach:expr) => {
        impl $($of)* UpdatedTree for $name {
            const FLUSHES_UNDER_LOCK: bool = $flushes;
            const PARENTS_FIRST: bool = $parents_first;
            const NODE_BYTES: usize = 2 * size_of::<AtomicU32>();

            fn new(groups: usize) -> Self {
                Self(Singly::new(groups))
            }

            #[inline]
            fn is_on(&self, group: u32) -> bool {
                self.0.is_on(group)
            }

            fn link(&self, parents: &[u32], group: u32) {
                self.0.link(parents, group);
            }

            fn detach(&self, parents: &[u32], root: u32, each: &mut impl FnMut(u32)) -> u64 {
                $detach(&self.0, parents, root, each)
            }

            #[cfg(test)]
            fn is_consistent(&self, parents: &[u32]) -> Result<(), String> {
                self.0.is_consistent(parents)
            }
        }
    };
}

updated_tree!([] PopLeaf, true, false, Singly::pop_all);
updated_tree!([] PopList, false, false, Singly::pop_all);
updated_tree!([<const TYPO: bool>] PushChildren<TYPO>, false, true, push_all::<TYPO>);

fn push_all<const TYPO: bool>(
    nodes: &Singly,
    parents: &[u32],
    root: u32,
    each: &mut impl FnMut(u32),
) -> u64 {
    if !nodes.is_on(root) {
        return 1;
    }
    let visits = nodes.unlink(parents, root);
    each(root);
    if nodes.children(root) == root {
        return visits + 1;
    }
    visits + nodes.push_children::<TYPO>(root, each)
}
