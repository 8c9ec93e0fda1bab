//! The items of one tenant, in no order, to choose victims from.

use std::sync::Arc;

use super::item::Item;

/// How many items compete to be the victim. Of ten taken at random the one least recently used is
/// with 65 % among the oldest tenth of all.
const SAMPLES: usize = 10;

/// Holds a tenant's items so that any can be taken out at once and a few picked at random.
///
/// Victims are sampled rather than kept in a list by use: a list would have to be locked and changed
/// by every fetch, a sample costs fetches one plain store. A clock hand was rejected because it may
/// have to pass every item before it finds one, with the lock held.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    items: Vec<Arc<Item>>,
    bytes: u64,
}

impl Ring {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What the items were charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn insert(&mut self, item: Arc<Item>) {
        item.set_slot(self.items.len());
        self.bytes += item.cost();
        self.items.push(item);
    }

    /// Takes an item out that is known to be in.
    pub(crate) fn remove(&mut self, item: &Item) {
        let slot = item.slot();
        debug_assert!(self.items.get(slot).is_some_and(|held| std::ptr::eq(&**held, item)));
        self.bytes -= item.cost();
        self.items.swap_remove(slot);
        if let Some(moved) = self.items.get(slot) {
            moved.set_slot(slot);
        }
    }

    /// Picks the least recently used of a few, or any that has expired.
    pub(crate) fn victim(&self, now_ms: u64) -> Option<Arc<Item>> {
        let len = self.items.len();
        let pick = |index: usize| if len <= SAMPLES { index } else { fastrand::usize(..len) };
        let candidates = (0..len.min(SAMPLES)).map(|index| &self.items[pick(index)]);
        let age = |item: &&Arc<Item>| (!item.is_expired(now_ms), item.accessed_us());
        candidates.min_by_key(age).cloned()
    }

    /// Picks up to `n`, those that are taken out cheapest.
    pub(crate) fn some(&self, n: usize) -> Vec<Arc<Item>> {
        self.items.iter().rev().take(n).cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.items = Vec::new();
        self.bytes = 0;
    }
}
