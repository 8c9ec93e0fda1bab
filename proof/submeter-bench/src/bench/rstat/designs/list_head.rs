//! The updated tree as the reviewer proposed it: doubly linked lists, with twice the links for each
//! node.
//!
//! Written from the proposal. A node's children form a ring through a head in the node; a node is
//! on the list when its own link is in a ring with others. The root has no siblings, and is on a
//! ring of two.

use std::sync::atomic::{AtomicU32, Ordering};

use super::NONE;
use super::lists::UpdatedTree;

/// One link of a ring.
struct Link {
    previous: AtomicU32,
    next: AtomicU32,
}

/// A node on one CPU, on cache lines of its own as in the other designs.
#[repr(align(64))]
struct Node {
    /// The head of the ring of its updated children.
    children: Link,
    /// Its place on its parent's ring.
    sibling: Link,
}

/// The nodes of one CPU. The last is an extra head, whose ring holds the root or nothing.
pub(in crate::bench::rstat) struct ListHead(Vec<Node>);

/// Returns the place of the head of a node's children.
fn children(group: u32) -> u32 {
    2 * group
}

/// Returns the place of a node's link among its siblings.
fn sibling(group: u32) -> u32 {
    2 * group + 1
}

impl ListHead {
    fn link_of(&self, place: u32) -> &Link {
        let node = &self.0[(place / 2) as usize];
        if place.is_multiple_of(2) { &node.children } else { &node.sibling }
    }

    fn next(&self, place: u32) -> u32 {
        // Relaxed: with the lock held or, in `is_on`, a guess that the lock confirms.
        self.link_of(place).next.load(Ordering::Relaxed)
    }

    fn join(&self, previous: u32, next: u32) {
        // Relaxed, both: with the lock held; a check without it may be out of date, as in Linux.
        self.link_of(previous).next.store(next, Ordering::Relaxed);
        self.link_of(next).previous.store(previous, Ordering::Relaxed);
    }

    fn add(&self, place: u32, head: u32) {
        let first = self.next(head);
        self.join(head, place);
        self.join(place, first);
    }

    fn remove(&self, place: u32) {
        // Relaxed: with the lock held.
        let previous = self.link_of(place).previous.load(Ordering::Relaxed);
        self.join(previous, self.next(place));
        self.join(place, place);
    }

    /// Returns the head of the ring that a node and its siblings are on.
    fn head(&self, parents: &[u32], group: u32) -> u32 {
        let parent = parents[group as usize];
        children(if parent == NONE { self.0.len() as u32 - 1 } else { parent })
    }
}

impl UpdatedTree for ListHead {
    const FLUSHES_UNDER_LOCK: bool = false;
    const PARENTS_FIRST: bool = true;
    const NODE_BYTES: usize = 2 * size_of::<Link>();

    fn new(groups: usize) -> ListHead {
        let link = |place| Link { previous: AtomicU32::new(place), next: AtomicU32::new(place) };
        let node = |group| Node { children: link(children(group)), sibling: link(sibling(group)) };
        ListHead((0..=groups as u32).map(node).collect())
    }

    #[inline]
    fn is_on(&self, group: u32) -> bool {
        // Relaxed: a guess that the lock confirms.
        let next = self.0[group as usize].sibling.next.load(Ordering::Relaxed);
        next != sibling(group)
    }

    fn link(&self, parents: &[u32], group: u32) {
        let mut at = group;
        while at != NONE && !self.is_on(at) {
            self.add(sibling(at), self.head(parents, at));
            at = parents[at as usize];
        }
    }

    fn detach(&self, parents: &[u32], root: u32, each: &mut impl FnMut(u32)) -> u64 {
        if !self.is_on(root) {
            return 1;
        }
        self.remove(sibling(root));
        each(root);
        // Down to a node's children on its first visit, and up again when a ring is empty: the
        // depth of the tree needs no stack.
        let (mut at, mut visits) = (root, 1);
        loop {
            let place = self.next(children(at));
            if place != children(at) {
                let child = place / 2;
                self.remove(place);
                each(child);
                visits += 1;
                at = child;
            } else if at == root {
                return visits;
            } else {
                at = parents[at as usize];
            }
        }
    }

    #[cfg(test)]
    fn is_consistent(&self, parents: &[u32]) -> Result<(), String> {
        for place in 0..2 * self.0.len() as u32 {
            let next = self.next(place);
            // Relaxed: no other thread uses the list.
            if self.link_of(next).previous.load(Ordering::Relaxed) != place {
                return Err(format!("{place} and {next} disagree"));
            }
        }
        for group in 0..parents.len() as u32 {
            let mut place = self.next(children(group));
            while place != children(group) {
                let child = place / 2;
                if parents[child as usize] != group || !self.is_on(group) {
                    return Err(format!("{child} is wrong on the list of {group}"));
                }
                place = self.next(place);
            }
        }
        Ok(())
    }
}
