//! The items of one tenant, unordered, from which victims are chosen.

use std::sync::Arc;

use submeter::Charge;
use submeter::refs::{Guard, RcuArc, RcuBorrow};

use super::Item;

/// How many items compete to be the victim. The least recently used of ten random items is among
/// the oldest tenth of all with a probability of 65 %.
const SAMPLES: usize = 10;

/// A tenant's items, any of which can be removed at once, and a few picked at random.
///
/// Victims are sampled rather than kept in a list by use: every fetch would have to lock and change
/// a list, while sampling costs a fetch one plain store. A clock hand was rejected because it may
/// have to pass every item before it finds one, with the lock held.
///
/// The ring also holds the charge for all its items. There is no charge per item: an item's memory
/// outlives the item by a grace period and by the answers on their way, while its charge must be
/// given back at once.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    items: Vec<RcuArc<Item<T>>>,
    /// The charge for all of `items`; `None` when there are none, so that no killed group is kept.
    held: Option<Charge>,
    /// The tenant itself while there are items: they do not keep it alive, and need it when they
    /// leave.
    tenant: Option<Arc<T>>,
}

/// The references that a ring releases with an item. Drop them outside of its lock, since they may
/// be the last ones to the ring.
#[must_use]
pub(crate) struct Removed<T> {
    pub(crate) item: RcuArc<Item<T>>,
    _charge: Option<Charge>,
    _tenant: Option<Arc<T>>,
}

impl<T> Ring<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes charged for the items.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, Charge::amount)
    }

    /// Adds an item of `tenant`, whose ring this is, with its charge.
    pub(crate) fn insert(&mut self, item: RcuArc<Item<T>>, charge: Charge, tenant: &Arc<T>) {
        debug_assert_eq!(charge.amount(), item.cost());
        item.set_slot(self.items.len());
        match &mut self.held {
            Some(held) => held.merge(charge),
            none => *none = Some(charge),
        }
        if self.items.is_empty() {
            self.tenant = Some(Arc::clone(tenant));
        }
        self.items.push(item);
    }

    /// Removes an item that is known to be in the ring.
    pub(crate) fn remove(&mut self, item: &Item<T>) -> Removed<T> {
        let slot = item.slot();
        debug_assert!(self.items.get(slot).is_some_and(|held| std::ptr::eq(&**held, item)));
        let removed = self.items.swap_remove(slot);
        if let Some(moved) = self.items.get(slot) {
            moved.set_slot(slot);
        }
        let (charge, tenant) = if self.items.is_empty() {
            (self.held.take(), self.tenant.take())
        } else {
            (self.held.as_mut().map(|held| held.split(item.cost())), None)
        };
        Removed { item: removed, _charge: charge, _tenant: tenant }
    }

    /// Picks the least recently used of a few items, or any that has expired.
    pub(crate) fn victim<'g>(
        &self,
        now_ms: u64,
        guard: &'g Guard,
    ) -> Option<RcuBorrow<'g, Item<T>>> {
        let len = self.items.len();
        let pick = |index: usize| if len <= SAMPLES { index } else { fastrand::usize(..len) };
        let candidates = (0..len.min(SAMPLES)).map(|index| &self.items[pick(index)]);
        let age = |item: &&RcuArc<Item<T>>| (!item.is_expired(now_ms), item.accessed_us());
        candidates.min_by_key(age).map(|item| RcuArc::borrow(item, guard))
    }

    /// Picks up to `n` items, those that are cheapest to remove.
    pub(crate) fn some(&self, n: usize) -> Vec<RcuArc<Item<T>>> {
        self.items.iter().rev().take(n).cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.items = Vec::new();
        self.held = None;
        self.tenant = None;
    }
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring { items: Vec::new(), held: None, tenant: None }
    }
}
