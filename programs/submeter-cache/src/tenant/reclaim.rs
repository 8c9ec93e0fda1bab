//! Freed places: those of tenants that no one would miss, when a new tenant finds none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::Group;
use submeter::refs::pin;

use super::places::Place;
use super::{Tenant, Tenants};
use crate::clock::Tick;

/// How long a tenant must have been without a request. Otherwise the group of a tenant that comes
/// and goes would be killed and recreated each time, which takes a barrier.
const IDLE_MS: u64 = 3_000;

/// Maximum number of places that a look frees, and of groups that it kills. Each takes some tens of
/// microseconds.
const FREED_MAX: usize = 32;

/// The pause after a look that found nothing, as a multiple of the look's duration; after a look
/// that found a few places it is shorter in proportion. Where all places are in use, requests for
/// new tenants thus spend at most a fiftieth of a CPU on looks for each place that they get.
const PAUSE: u64 = 50;

/// The place and the time of the next look.
#[derive(Default)]
pub(super) struct Reclaiming {
    next: usize,
    not_before_us: u64,
}

impl Tenants {
    /// Advances the time, a few times a second: the time of a tenant's last use is known with that
    /// precision.
    pub(crate) fn tick(&self) {
        // Relaxed: nothing else is published with the time.
        self.now_ms.store(self.clock.now().ms, Ordering::Relaxed);
    }

    /// Records that a request is for this tenant.
    #[inline]
    pub(super) fn note_use(&self, tenant: &Tenant) {
        // Relaxed, and below: independent numbers, for which a short delay does not matter.
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        // Loaded first: of all batches in a tick, one writes to the tenant's line.
        if tenant.used_ms.load(Ordering::Relaxed) < now_ms {
            // Relaxed: as above.
            tenant.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Gives back places of tenants that the program has killed, and of those that hold nothing,
    /// have no limits and were not used lately: these are killed, and their counts stay in their
    /// ancestors. The places are for a tenant of this path: while there are free places, only its
    /// owner's are considered. Returns whether any were found. Must not be called with a part of
    /// the index locked.
    pub(super) fn reclaim(&self, path: &str) -> bool {
        self.reclaim_at(self.clock.now(), self.places.to_ask(path).as_deref())
    }

    pub(super) fn reclaim_at(&self, began: Tick, owner: Option<&str>) -> bool {
        // A worker that finds another one looking continues: it has other clients.
        let Some(mut reclaiming) = self.reclaiming.try_lock() else { return false };
        if began.us < reclaiming.not_before_us {
            return false;
        }
        let (mut freed, mut killed, parts) = (0, 0, self.index.shards());
        for _ in 0..parts {
            let part = reclaiming.next;
            reclaiming.next = (part + 1) % parts;
            if self.index.is_empty(part) {
                continue;
            }
            let idle = |tenant: &Arc<Tenant>| self.is_idle(tenant, began.ms, owner);
            for tenant in self.index.select(part, idle).into_iter().take(FREED_MAX) {
                // Refused if it has children, which are idle too or must stay.
                killed += usize::from(tenant.group.kill().is_ok());
            }
            freed += self.sweep(part);
            if freed.max(killed) >= FREED_MAX {
                break;
            }
        }
        pin().flush();
        if freed < FREED_MAX {
            let took_us = self.clock.now().us.saturating_sub(began.us);
            let pause_us = PAUSE * took_us.max(100) / (1 + freed as u64);
            reclaiming.not_before_us = began.us + pause_us;
        }
        freed > 0
    }

    /// Returns whether no one would miss a tenant.
    fn is_idle(&self, tenant: &Arc<Tenant>, now_ms: u64, owner: Option<&str>) -> bool {
        let is_asked = |place: &Place| match (place, owner) {
            (Place::Kept, _) => false,
            (Place::Of(of), Some(owner)) => **of == *owner,
            (Place::None, Some(_)) => false,
            (_, None) => true,
        };
        // Relaxed: see `note_use`.
        let idle_ms = now_ms.saturating_sub(tenant.used_ms.load(Ordering::Relaxed));
        idle_ms >= IDLE_MS
            && is_asked(&tenant.place.lock())
            && tenant.ring.lock().is_empty()
            && tenant.group.child_count() == 0
            && !self.is_limited(&tenant.group)
    }

    /// Returns whether the program has set any limit of its own.
    fn is_limited(&self, group: &Group) -> bool {
        // Not the amount held: that visits all tenants, and would do so for each of them.
        let usage = group.usage_at_most(self.metrics.memory);
        [usage.limit, usage.high, usage.low, usage.min].iter().any(Option::is_some)
            || group.rate(self.metrics.requests).is_some()
            || group.rate(self.metrics.cpu_budget).is_some()
            || group.weight(self.metrics.requests).is_some()
    }
}
