//! Room under the limit that refused a charge, and nowhere else.
//!
//! *Where.* The error names the limiting group, and the search goes down from there: a tenant over
//! its own limit pays with its own items, and no other tenant loses one. Under a limit that several
//! share (the server's, a parent's) the storing tenant pays first if it holds at least its fair
//! share, which is what the group holds divided by the number of its holders; else the largest
//! holder pays. Without the fair share, a tenant that is new on a full server could never hold more
//! than one item: each would push out the last.
//!
//! *Which.* What has expired, of any tenant, before anything that lives; see `reclaim`. Then the
//! least recently used of a few: see [`Ring`](crate::item::Ring). Where evictions are switched off,
//! nothing that lives.
//!
//! *How long.* At most [`RECLAIM_MAX`] deadlines, then at most as many items as the missing
//! bytes can ever need, and a bounded number of rounds against threads that take the room first.

use std::sync::{Arc, Weak};

use submeter::refs::pin;
use submeter::{Charge, Group, LimitError};

use super::{Leave, Store};
use crate::clock::Tick;
use crate::item::OVERHEAD_BYTES;
use crate::statistics::Total;
use crate::tenant::{Hint, Tenant};

/// How often a charge is tried again. Each round has made enough room at its time.
const ROUNDS_MAX: usize = 64;

/// Items dropped beyond what the missing bytes can need: other threads may drop the same ones.
const SLACK: u64 = 64;

/// Deadlines that one charge may take: a third of a millisecond. They may all be of tenants whose
/// memory does not count under the limit; the rest is the background's.
const RECLAIM_MAX: usize = 1024;

/// Deadlines taken before the charge is tried again.
const RECLAIM_STEP: usize = 64;

/// Drops items until the charge is granted.
pub(super) fn make_room(
    store: &Store,
    tenant: &Arc<Tenant>,
    mut error: LimitError,
    now: Tick,
) -> Result<Charge, LimitError> {
    let bytes = error.requested();
    for _ in 0..RECLAIM_MAX / RECLAIM_STEP {
        if bytes > error.limit() || store.reclaim(now, RECLAIM_STEP).looked == 0 {
            break;
        }
        match tenant.group.try_charge(store.memory, bytes) {
            Ok(charge) => return Ok(charge),
            Err(again) => error = again,
        }
    }
    if !store.evictions_allowed {
        return Err(error);
    }
    for _ in 0..ROUNDS_MAX {
        if bytes > error.limit() {
            return Err(error);
        }
        let missing = (error.current() + bytes).saturating_sub(error.limit());
        let Some(limiting) = level_of(tenant, error.limiting()) else { return Err(error) };
        if !free(store, &limiting, tenant, missing, now) {
            return Err(error);
        }
        match tenant.group.try_charge(store.memory, bytes) {
            Ok(charge) => return Ok(charge),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Drops items worth `missing` bytes below `limiting`. Returns whether it found any.
fn free(
    store: &Store,
    limiting: &Arc<Tenant>,
    storing: &Arc<Tenant>,
    missing: u64,
    now: Tick,
) -> bool {
    let mut freed = 0;
    let guard = pin();
    for _ in 0..missing / OVERHEAD_BYTES + SLACK {
        if freed >= missing {
            break;
        }
        let Some(holder) = holder(store, limiting, storing) else { break };
        let Some(victim) = holder.ring.lock().victim(now.ms, &guard) else { continue };
        let why = if victim.is_expired(now.ms) { Leave::Expired } else { Leave::Evicted };
        // Another thread may have dropped it already, which frees as much.
        freed += victim.cost();
        if store.unlink(victim.value(), why) && why == Leave::Expired {
            store.totals.count(Total::Reclaimed);
        }
    }
    freed > 0
}

/// Returns the tenant of a group at or above `tenant`.
fn level_of(tenant: &Arc<Tenant>, group: &Group) -> Option<Arc<Tenant>> {
    let mut level = Some(tenant);
    while let Some(at) = level {
        if at.group == *group {
            return Some(Arc::clone(at));
        }
        level = at.parent.as_ref();
    }
    None
}

/// Chooses the tenant that loses an item: one at or below `top` that has any.
fn holder(store: &Store, top: &Arc<Tenant>, storing: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut at = Arc::clone(top);
    loop {
        if Arc::ptr_eq(&at, storing) && !at.ring.lock().is_empty() {
            return Some(at);
        }
        let next = match path_child(&at, storing) {
            Some(child) if holds_fair_share(store, &at, &child) => child,
            // Bytes are held but no item is below: they were charged for items that are not stored
            // yet. Any tenant with an item must do.
            _ => match largest(store, &at) {
                Some(largest) => largest,
                None => return any_holder(top),
            },
        };
        if Arc::ptr_eq(&next, &at) {
            return Some(at);
        }
        at = next;
    }
}

/// Returns the child of `at` that is `storing` or above it.
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

fn held(store: &Store, tenant: &Tenant) -> u64 {
    tenant.group.usage(store.memory).current
}

fn holds_fair_share(store: &Store, at: &Arc<Tenant>, child: &Arc<Tenant>) -> bool {
    let holders = {
        let mut hint = at.hint.lock();
        if hint.left == 0 {
            *hint = survey(store, at);
        }
        hint.holders.max(1)
    };
    let own = held(store, child);
    own > 0 && own.saturating_mul(holders) >= held(store, at)
}

/// Returns the largest holder among a tenant's children, or the tenant if its own items are more.
fn largest(store: &Store, at: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut hint = at.hint.lock();
    if hint.left > 0 {
        hint.left -= 1;
        let holder = hint.holder.upgrade();
        if let Some(holder) = holder.filter(|holder| has_items(store, holder, at)) {
            return Some(holder);
        }
    }
    *hint = survey(store, at);
    hint.holder.upgrade()
}

fn has_items(store: &Store, holder: &Arc<Tenant>, at: &Arc<Tenant>) -> bool {
    if Arc::ptr_eq(holder, at) { !at.ring.lock().is_empty() } else { held(store, holder) > 0 }
}

/// Returns any tenant at or below `top` that has an item. Visits all of them, and so is the last
/// resort.
fn any_holder(top: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut stack = vec![Arc::clone(top)];
    while let Some(tenant) = stack.pop() {
        if !tenant.ring.lock().is_empty() {
            return Some(tenant);
        }
        stack.extend(tenant.children());
    }
    None
}

/// How many children may be visited per dropped item, on average: enough for the choice among few
/// tenants to be always fresh, few enough to cost less than the drop among many.
const VISITS: usize = 16;

/// Asks all children of a tenant what they hold.
fn survey(store: &Store, at: &Arc<Tenant>) -> Hint {
    let own = at.ring.lock().bytes();
    let children = at.children();
    let (mut most, mut holder, mut holders) = (own, None, u64::from(own > 0));
    for child in &children {
        let held = held(store, child);
        holders += u64::from(held > 0);
        if held > most {
            (most, holder) = (held, Some(child));
        }
    }
    let holder = match holder {
        Some(child) => Arc::downgrade(child),
        None if own > 0 => Arc::downgrade(at),
        None => Weak::new(),
    };
    Hint { holder, holders, left: children.len() / VISITS }
}
