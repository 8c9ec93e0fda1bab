//! Makes room under the limit that refused a charge, and nowhere else.
//!
//! *Where.* The error names the limiting group, and the search descends from there: a tenant over
//! its own limit pays with its own items, and no other tenant loses one. `victims` describes which
//! tenant pays below a limit that several share (the server's, a parent's).
//!
//! *Which.* Expired items of any tenant go before live ones; see `reclaim`. Then the least recently
//! used of a few items goes: see [`Ring`](crate::item::Ring). Where evictions are switched off,
//! nothing live goes.
//!
//! *How long.* At most [`RECLAIM_MAX`] deadlines, then at most as many items as the missing bytes
//! can ever need, and a bounded number of rounds against threads that take the room first. Items
//! are dropped a [`PORTION`] at a time, as long as room is missing: under a limit that was lowered
//! far, each storing thread would otherwise drop everything above it.
//!
//! *Above `high`* a store has room, and drops items in the same way afterwards: down to `high`, and
//! at most twice what it stored, so that a tenant whose `high` was lowered far shrinks with its
//! stores, and no single store takes long. Linux makes a thread above `memory.high` reclaim and
//! sleep. Only reclaiming makes a cache smaller: the sleep is for memory that cannot be taken from
//! a program, while everything here can be dropped.

use std::sync::Arc;

use submeter::refs::pin;
use submeter::{Charge, Group, LimitError, LimitMode};

use super::victims::Search;
use super::{Leave, Store, garbage};
use crate::clock::Tick;
use crate::item::OVERHEAD_BYTES;
use crate::statistics::Total;
use crate::tenant::Tenant;

/// How often a charge is retried. Each round made enough room when it ran.
const ROUNDS_MAX: usize = 64;

/// Items dropped beyond what the missing bytes can need: other threads may drop the same ones.
const SLACK: u64 = 64;

/// Deadlines that one charge may process: a third of a millisecond. They may all belong to tenants
/// whose memory does not count under the limit; the rest is left to the background.
const RECLAIM_MAX: usize = 1024;

/// Deadlines processed before the charge is retried.
const RECLAIM_STEP: usize = 64;

/// The bytes that a thread drops before it checks whether others have made room in the meantime:
/// few enough that all threads together drop hardly more than necessary, and many compared with the
/// cost of the check.
const PORTION: u64 = 1 << 16;

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
        if !free_while_missing(store, &limiting, tenant, bytes, missing, now) {
            return Err(error);
        }
        match tenant.group.try_charge(store.memory, bytes) {
            Ok(charge) => return Ok(charge),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Drops items worth `missing` bytes below `limiting`, but no more than a portion beyond what makes
/// room for `bytes` there. Returns whether it found any.
fn free_while_missing(
    store: &Store,
    limiting: &Arc<Tenant>,
    storing: &Arc<Tenant>,
    bytes: u64,
    mut missing: u64,
    now: Tick,
) -> bool {
    let mut found = false;
    while missing > 0 && free(store, limiting, storing, missing.min(PORTION), now) {
        found = true;
        missing = missing.saturating_sub(PORTION);
        if missing > 0 {
            let usage = limiting.group.usage(store.memory);
            let most = usage.limit.unwrap_or(u64::MAX);
            missing = missing.min((usage.current + bytes).saturating_sub(most));
        }
    }
    found
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
    let search = Search::new(store, limiting, storing);
    for _ in 0..missing / OVERHEAD_BYTES + SLACK {
        if freed >= missing {
            break;
        }
        let Some(victim) = search.victim(now, &guard) else { break };
        let why = if victim.is_expired(now.ms) { Leave::Expired } else { Leave::Evicted };
        // Another thread may have dropped it already, which frees as much.
        freed += victim.cost();
        if store.unlink(victim.value(), why) && why == Leave::Expired {
            store.totals.count(Total::Reclaimed);
        }
    }
    freed > 0
}

/// Drops items of tenants that are above their `high`, after a store of `bytes`.
pub(super) fn shrink(store: &Store, tenant: &Arc<Tenant>, bytes: u64, now: Tick) {
    let Some((group, above)) = tenant.group.above_high(store.memory) else { return };
    if store.metering {
        group.add(store.over_high, 1);
    }
    let Some(level) = level_of(tenant, group).filter(|_| store.evictions_allowed) else { return };
    free(store, &level, tenant, above.min(bytes.saturating_mul(2)), now);
}

/// Drops items of a tenant whose limit is below what it holds, until it no longer is. Must not be
/// called within a guard.
pub(super) fn yield_excess(store: &Store, tenant: &Arc<Tenant>, now: Tick) {
    loop {
        let usage = tenant.group.usage(store.memory);
        // Items above a soft limit stay.
        let may_drop = store.evictions_allowed && usage.mode != LimitMode::Soft;
        let portion = if may_drop { usage.excess().min(PORTION) } else { 0 };
        if portion == 0 || !free(store, tenant, tenant, portion, now) {
            return;
        }
        garbage::collect_if_due();
    }
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
