//! The items of one tenant, in no order, to choose victims from.

use std::sync::Arc;

use submeter::Charge;
use submeter::percpu::rcuref::{Guard, RcuArc, RcuBorrow};

use super::item::Item;
use crate::tenant::Tenant;

/// How many items compete to be the victim. Of ten taken at random the one least recently used is
/// with 65 % among the oldest tenth of all.
const SAMPLES: usize = 10;

/// Holds a tenant's items so that any can be taken out at once and a few picked at random.
///
/// Victims are sampled rather than kept in a list by use: a list would have to be locked and changed
/// by every fetch, a sample costs fetches one plain store. A clock hand was rejected because it may
/// have to pass every item before it finds one, with the lock held.
///
/// It also holds what its items are charged, as one charge. Not each item its own: an item's memory
/// outlives it by a grace period and by the answers that are being sent, and a limit has to be free
/// again the moment that an item has left.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    items: Vec<RcuArc<Item>>,
    /// For all of `items`; nothing when there is none, so that a killed group is not kept.
    held: Option<Charge>,
    /// The tenant itself while there are items: they do not keep it, and need it to leave.
    tenant: Option<Arc<Tenant>>,
}

/// What a ring lets go with an item. To be dropped out of its lock: it may be what keeps the ring.
#[must_use]
pub(super) struct Removed {
    pub(super) item: RcuArc<Item>,
    _charge: Option<Charge>,
    _tenant: Option<Arc<Tenant>>,
}

impl Ring {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What the items were charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, Charge::amount)
    }

    /// Takes an item of `tenant`, whose ring this is, with what it was charged.
    pub(super) fn insert(&mut self, item: RcuArc<Item>, charge: Charge, tenant: &Arc<Tenant>) {
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

    /// Takes an item out that is known to be in.
    pub(super) fn remove(&mut self, item: &Item) -> Removed {
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

    /// Picks the least recently used of a few, or any that has expired.
    pub(crate) fn victim<'g>(&self, now_ms: u64, guard: &'g Guard) -> Option<RcuBorrow<'g, Item>> {
        let len = self.items.len();
        let pick = |index: usize| if len <= SAMPLES { index } else { fastrand::usize(..len) };
        let candidates = (0..len.min(SAMPLES)).map(|index| &self.items[pick(index)]);
        let age = |item: &&RcuArc<Item>| (!item.is_expired(now_ms), item.accessed_us());
        candidates.min_by_key(age).map(|item| RcuArc::borrow(item, guard))
    }

    /// Picks up to `n`, those that are taken out cheapest.
    pub(crate) fn some(&self, n: usize) -> Vec<RcuArc<Item>> {
        self.items.iter().rev().take(n).cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.items = Vec::new();
        self.held = None;
        self.tenant = None;
    }
}
