//! The expiry times of the items of one shard, soonest first, so that expired items can be dropped
//! without visiting the others.
//!
//! They form a heap of times and hashes, under the shard's lock. An entry names a hash, not an
//! item: an item that is replaced, deleted or evicted leaves its entry behind, which finds nothing
//! once it is due; an item that expires later than its entry says is filed again then. Removals and
//! most touches therefore cost nothing. Rejected: a heap in which each item knows its place,
//! because every sift would write to several items; and a timing wheel, because it would have to
//! move an item at each touch.
//!
//! Rules: for each item that expires there is an entry that is due no later than the item. The
//! number of entries is at most one and a half times the number of items, plus a few: before it
//! exceeds that, the heap is rebuilt from the items.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Item, RcuArc};
use crate::item::Deadline;

/// Entries that a shard may have beyond its bound, so that the heap of a few items is not rebuilt
/// with every store.
const SLACK: usize = 64;

/// The time at which nothing is due.
pub(super) const NEVER_MS: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Deadline>,
}

impl Deadlines {
    /// Files an item that expires at `at_ms`.
    pub(super) fn file(&mut self, at_ms: u64, hash: u64) {
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact(self.heap.len() / 4 + 4);
        }
        self.heap.push(Reverse((at_ms, hash)));
    }

    /// Removes an entry that is due, and returns its hash.
    pub(super) fn pop(&mut self, now_ms: u64) -> Option<u64> {
        if self.next_ms() > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse((_, hash))| hash)
    }

    /// Returns when the soonest entry is due.
    pub(super) fn next_ms(&self) -> u64 {
        self.heap.peek().map_or(NEVER_MS, |Reverse((at_ms, _))| *at_ms)
    }

    /// Returns whether there are more entries than that many items may have.
    pub(super) fn is_over(&self, items: usize) -> bool {
        self.heap.len() > items + items / 2 + SLACK
    }

    /// Drops all entries and files one for each of these items that expires.
    pub(super) fn renew<'a>(&mut self, items: impl Iterator<Item = &'a RcuArc<Item>>) {
        let expiring = items.filter(|item| item.expires_ms() != 0);
        self.heap = expiring.map(|item| Reverse((item.expires_ms(), item.hash()))).collect();
        self.heap.shrink_to_fit();
    }

    pub(super) fn clear(&mut self) {
        self.heap = BinaryHeap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_due_comes_out_soonest_first() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.next_ms(), NEVER_MS);
        for (at_ms, hash) in [(5000, 5), (1, u64::MAX), (4999, 1 << 32), (5001, 7)] {
            deadlines.file(at_ms, hash);
        }
        assert_eq!(deadlines.next_ms(), 1);
        assert_eq!(deadlines.pop(0), None);
        let due: Vec<u64> = std::iter::from_fn(|| deadlines.pop(5000)).collect();
        assert_eq!(due, [u64::MAX, 1 << 32, 5]);
        assert_eq!(deadlines.next_ms(), 5001);
    }
}
