//! Makes room under the limit that refused a charge, and nowhere else.
//!
//! *Where.* The error names the limiting group. From there the search goes down: a tenant that is
//! over its own limit therefore pays with its own items, and nobody outside can lose one. Under a
//! limit that several share (the server's, a parent's) the storing tenant pays first as long as it
//! holds at least its fair share, which is what the group holds divided by those who hold some of
//! it; else the largest holder pays. Without the fair share a tenant that comes to a full server
//! could never hold more than one item: each would push out the one before.
//!
//! *Which.* The least recently used of a few: see [`Ring`](super::Ring).
//!
//! *How long.* As many items at most as could ever be needed for the bytes that are missing, and a
//! bounded number of rounds against others who take the room that was made.

use std::sync::{Arc, Weak};

use submeter::percpu::rcuref::pin;
use submeter::{Charge, Group, LimitError};

use super::item::OVERHEAD_BYTES;
use super::{Leave, Store, Tick};
use crate::tenant::Tenant;

/// How often a charge is tried again. Each round made enough room when it was made.
const ROUNDS_MAX: usize = 64;

/// Items dropped beyond what the missing bytes can need: other threads may drop the same ones.
const SLACK: u64 = 64;

/// Drops items until the charge is granted.
pub(super) fn make_room(
    store: &Store,
    tenant: &Arc<Tenant>,
    mut error: LimitError,
    now: Tick,
) -> Result<Charge, LimitError> {
    let bytes = error.requested();
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

/// Drops items worth `missing` bytes below `limiting`. Says whether it found any.
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
        // Another thread may have dropped it meanwhile: that freed it just as well.
        freed += victim.cost();
        store.unlink(victim.value(), why);
    }
    freed > 0
}

/// The tenant of a group at or above `tenant`.
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

/// Chooses whose item goes: a tenant at or below `top` that has one.
fn holder(store: &Store, top: &Arc<Tenant>, storing: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut at = Arc::clone(top);
    loop {
        if Arc::ptr_eq(&at, storing) && !at.ring.lock().is_empty() {
            return Some(at);
        }
        let next = match path_child(&at, storing) {
            Some(child) if holds_fair_share(store, &at, &child) => child,
            // Bytes are held but no item is below: they were charged for items that are not stored
            // yet. Whoever has any item left must do.
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

/// The child of `at` that is `storing` or above it.
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
            *hint = Hint::new(store, at);
        }
        hint.holders.max(1)
    };
    let own = held(store, child);
    own > 0 && own.saturating_mul(holders) >= held(store, at)
}

/// The largest holder among a tenant's children and, if its own items are more, itself.
fn largest(store: &Store, at: &Arc<Tenant>) -> Option<Arc<Tenant>> {
    let mut hint = at.hint.lock();
    if hint.left > 0 {
        hint.left -= 1;
        let holder = hint.holder.upgrade();
        if let Some(holder) = holder.filter(|holder| has_items(store, holder, at)) {
            return Some(holder);
        }
    }
    *hint = Hint::new(store, at);
    hint.holder.upgrade()
}

fn has_items(store: &Store, holder: &Arc<Tenant>, at: &Arc<Tenant>) -> bool {
    if Arc::ptr_eq(holder, at) { !at.ring.lock().is_empty() } else { held(store, holder) > 0 }
}

/// Any tenant at or below `top` that has an item. Visits them all: only for when nothing else found
/// one.
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

/// Remembers who holds what below a tenant, so that not every eviction visits all its children.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    /// The largest holder.
    holder: Weak<Tenant>,
    /// How many hold anything.
    holders: u64,
    /// For how many more evictions this is taken for true.
    left: usize,
}

/// How many children may be visited for each item dropped, on average: enough that with few
/// tenants the choice is always fresh, few enough that with many it costs less than the drop.
const VISITS: usize = 16;

impl Hint {
    fn new(store: &Store, at: &Arc<Tenant>) -> Hint {
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
}
