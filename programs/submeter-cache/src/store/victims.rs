//! The choice of the item that makes room below a limit. The search descends from the limited
//! group.
//!
//! At each level the storing tenant pays first if it holds at least its fair share, which is what
//! the level holds divided by the number of its holders; otherwise the largest holder pays. Without
//! the fair share, a new tenant on a full server could never hold more than one item: each would
//! push out the previous one.
//!
//! *Protected* memory counts as not held: `low` at first, and `min` when no tenant has more than
//! its `low`. When none has more than its `min` either, the storing tenant pays with an item of its
//! own, if it has any. An item goes only if the tenant keeps at least its protected bytes, so that
//! a tenant stays at its `low`, apart from items that other threads drop at the same time.
//! Protection does not apply against a tenant's own limit, since the search begins below it.
//!
//! An expired item may always go.

use std::sync::{Arc, Weak};

use submeter::refs::{Guard, RcuBorrow};
use submeter::{Group, Protection};

use super::Store;
use crate::clock::Tick;
use crate::tenant::{Hint, Item, Tenant};

/// The protection that a search respects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    Low,
    Min,
}

impl Spare {
    fn of(self, protection: Protection) -> u64 {
        match self {
            Spare::Low => protection.low.max(protection.min),
            Spare::Min => protection.min,
        }
    }
}

/// A search for items that may be dropped below `top`.
pub(super) struct Search<'a> {
    store: &'a Store,
    top: &'a Arc<Tenant>,
    storing: &'a Arc<Tenant>,
    /// Without any protection a single search suffices, in which nothing is spared.
    spares: &'static [Spare],
}

/// A tenant that may lose items worth this many bytes.
struct Holder {
    tenant: Arc<Tenant>,
    spareable: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(store: &'a Store, top: &'a Arc<Tenant>, storing: &'a Arc<Tenant>) -> Self {
        let spares: &[Spare] =
            if store.has_protection() { &[Spare::Low, Spare::Min] } else { &[Spare::Min] };
        Search { store, top, storing, spares }
    }

    /// Chooses an item; `None` if there is none to be had.
    pub(super) fn victim<'g>(&self, now: Tick, guard: &'g Guard) -> Option<RcuBorrow<'g, Item>> {
        for &spare in self.spares {
            let mut anew = false;
            for _ in 0..TRIES {
                let Some(Holder { tenant, spareable }) = self.holder(spare, anew) else { break };
                let Some(victim) = tenant.ring.lock().victim(now.ms, guard) else { continue };
                let fits = victim.cost() <= spareable || !self.store.has_protection();
                if fits || victim.is_expired(now.ms) {
                    return Some(victim);
                }
                if anew {
                    // No tenant has more to spare, and this is less than an item.
                    break;
                }
                // Another tenant may hold more than its share, or more than the hinted victim.
                anew = true;
            }
        }
        self.storing.ring.lock().victim(now.ms, guard)
    }

    /// Chooses the tenant that loses an item: one at or below `top` that has any. With `anew` it is
    /// the one with the most to spare, after visiting all.
    fn holder(&self, spare: Spare, anew: bool) -> Option<Holder> {
        let mut at = Holder { tenant: Arc::clone(self.top), spareable: u64::MAX };
        loop {
            let is_storing = Arc::ptr_eq(&at.tenant, self.storing);
            if is_storing && !anew && !at.tenant.ring.lock().is_empty() {
                return Some(at);
            }
            let fair = if anew { None } else { self.fair_share(&at.tenant, spare) };
            let next = match fair {
                Some(child) => child,
                // Bytes are held but there is no item below: they were charged for items that are
                // not stored yet. Any tenant with an item must do.
                None => match self.largest(&at.tenant, spare, anew) {
                    Some(largest) => largest,
                    None => return self.any_holder(spare),
                },
            };
            let spareable = next.spareable.min(at.spareable);
            let is_end = Arc::ptr_eq(&next.tenant, &at.tenant);
            at = Holder { spareable, ..next };
            if is_end {
                return Some(at);
            }
        }
    }

    /// Returns the child of `at` that is the storing tenant or its ancestor, if it holds its fair
    /// share of what is not spared.
    fn fair_share(&self, at: &Arc<Tenant>, spare: Spare) -> Option<Holder> {
        let child = path_child(at, self.storing)?;
        let (holders, spared) = {
            let mut hint = self.hint(at, spare);
            if hint.left == 0 {
                *hint = self.survey(at, spare);
            }
            (hint.holders.max(1), hint.spared)
        };
        let [(held, of_child)] = self.held(at, spare, [&child.group])[..] else { return None };
        let spareable = held.saturating_sub(of_child);
        let all = self.usage(at).saturating_sub(spared);
        let is_fair = spareable > 0 && spareable.saturating_mul(holders) >= all;
        is_fair.then_some(Holder { tenant: child, spareable })
    }

    /// Returns the largest holder among a tenant's children, or the tenant itself if its own items
    /// are larger.
    fn largest(&self, at: &Arc<Tenant>, spare: Spare, anew: bool) -> Option<Holder> {
        let mut hint = self.hint(at, spare);
        if hint.left > 0 && !anew {
            hint.left -= 1;
            if let Some(holder) = self.hinted(&hint, at) {
                return Some(holder);
            }
        }
        *hint = self.survey(at, spare);
        self.hinted(&hint, at)
    }

    /// Returns the tenant that a hint names, if it still has more than is spared.
    fn hinted(&self, hint: &Hint, at: &Arc<Tenant>) -> Option<Holder> {
        let tenant = hint.holder.upgrade()?;
        let held = match Arc::ptr_eq(&tenant, at) {
            true => at.ring.lock().bytes(),
            false => self.usage(&tenant),
        };
        let spareable = held.saturating_sub(hint.holder_spared);
        (spareable > 0).then_some(Holder { tenant, spareable })
    }

    /// Returns what was found below `at` for this search; `None` if it was found for another.
    fn hint<'t>(
        &self,
        at: &'t Tenant,
        spare: Spare,
    ) -> impl std::ops::DerefMut<Target = Hint> + 't {
        let mut hint = match spare {
            Spare::Low => at.hints[0].lock(),
            Spare::Min => at.hints[1].lock(),
        };
        let top = Arc::as_ptr(self.top) as usize;
        if hint.top != top {
            *hint = Hint { top, ..Hint::default() };
        }
        hint
    }

    /// Returns any tenant at or below `top` that has an item to spare. It visits all tenants, and
    /// is therefore the last resort.
    fn any_holder(&self, spare: Spare) -> Option<Holder> {
        let all = Holder { tenant: Arc::clone(self.top), spareable: u64::MAX };
        let mut stack = vec![all];
        self.store.tenants.sweep_all();
        while let Some(Holder { tenant, spareable }) = stack.pop() {
            let own = tenant.ring.lock().bytes();
            let (children, _) = self.store.tenants.children(&tenant.group);
            let (own_spared, parts) = self.spared(&tenant, spare, &children);
            let own_spareable = own.saturating_sub(own_spared).min(spareable);
            if own_spareable > 0 {
                return Some(Holder { tenant, spareable: own_spareable });
            }
            let parts = children.iter().zip(parts).filter_map(|(child, (held, spared))| {
                let spareable = held.saturating_sub(spared).min(spareable);
                // Its items may be all that it holds, though its charges are on their way.
                let tenant = Tenant::of(child).filter(|_| spareable > 0)?;
                Some(Holder { tenant, spareable })
            });
            stack.extend(parts);
        }
        None
    }

    /// Asks all children of a tenant what they hold and how much of it is spared.
    fn survey(&self, at: &Arc<Tenant>, spare: Spare) -> Hint {
        let own = at.ring.lock().bytes();
        let (children, looked_at) = self.store.tenants.children(&at.group);
        self.store.tenants.sweep_some(children.len());
        let (own_spared, parts) = self.spared(at, spare, &children);
        let own = own.saturating_sub(own_spared);
        let mut hint = Hint {
            top: Arc::as_ptr(self.top) as usize,
            holder: if own > 0 { Arc::downgrade(at) } else { Weak::new() },
            holder_spared: own_spared,
            holders: u64::from(own > 0),
            spared: own_spared,
            // The full cost of a survey counts: many dying tenants elsewhere must not be walked for
            // each item.
            left: looked_at / VISITS,
        };
        let mut most = own;
        for (child, (held, spared)) in children.iter().zip(parts) {
            let spareable = held.saturating_sub(spared);
            hint.holders += u64::from(spareable > 0);
            hint.spared = hint.spared.saturating_add(spared);
            if spareable > most
                && let Some(tenant) = Tenant::of(child)
            {
                most = spareable;
                (hint.holder, hint.holder_spared) = (Arc::downgrade(&tenant), spared);
            }
        }
        hint
    }

    /// Returns how much of a tenant's own items is spared, and for each child what it holds and how
    /// much of that is spared.
    fn spared(&self, at: &Arc<Tenant>, spare: Spare, children: &[Group]) -> (u64, Vec<(u64, u64)>) {
        let parts = self.held(at, spare, children);
        if !self.store.has_protection() {
            return (0, parts);
        }
        // Its children share its protection with what it holds itself.
        let below = &self.top.group;
        let all = spare.of(at.group.protection(self.store.memory, below));
        let of_children = parts.iter().fold(0u64, |sum, (_, spared)| sum.saturating_add(*spared));
        (all.saturating_sub(of_children), parts)
    }

    /// Returns for children of `at` what they hold and how much of it is spared.
    fn held<'t>(
        &self,
        at: &Tenant,
        spare: Spare,
        children: impl IntoIterator<Item = &'t Group>,
    ) -> Vec<(u64, u64)> {
        let memory = self.store.memory;
        if !self.store.has_protection() {
            return children.into_iter().map(|child| (child.usage(memory).current, 0)).collect();
        }
        let found = at.group.protection_of_children(memory, &self.top.group, children);
        found.into_iter().map(|(usage, part)| (usage.current, spare.of(part))).collect()
    }

    fn usage(&self, tenant: &Tenant) -> u64 {
        tenant.group.usage(self.store.memory).current
    }
}

/// Returns the child of `at` that is `storing` or its ancestor.
fn path_child(at: &Arc<Tenant>, storing: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut level = storing;
    while let Some(parent) = level.parent.as_ref() {
        if Arc::ptr_eq(parent, at) {
            return Some(Arc::clone(level));
        }
        level = parent;
    }
    None
}

/// Number of attempts to find a holder, when other threads take the holders' last items first.
const TRIES: usize = 8;

/// How many children may be visited per dropped item, on average: enough that the choice among few
/// tenants is always fresh, and few enough to cost less than the drop among many.
const VISITS: usize = 16;
