//! Places that come back: of tenants that nobody would miss, when a new one finds none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::Group;
use submeter::refs::pin;

use super::places::Place;
use super::{Tenant, Tenants};
use crate::clock::Tick;

/// How long a tenant must have been without a request: who comes and goes would otherwise have its
/// group killed and made again each time, which takes a barrier.
const IDLE_MS: u64 = 3_000;

/// How many places a look frees at most, and how many groups it kills. Each takes some tens of
/// microseconds.
const FREED_MAX: usize = 32;

/// How much longer than a look that found nothing the pause after it is, and after one that found
/// little as much less as it found: where all places are in use, requests for new tenants spend at
/// most a fiftieth of a CPU on looks for each place that they get.
const PAUSE: u64 = 50;

/// The place and the time of the next look.
#[derive(Default)]
pub(super) struct Reclaiming {
    next: usize,
    not_before_us: u64,
}

impl Tenants {
    /// Says that time has passed, a few times a second: when a tenant was last used is known as
    /// exactly as that.
    pub(crate) fn tick(&self) {
        // Relaxed: nothing else is to be seen with the time.
        self.now_ms.store(self.clock.now().ms, Ordering::Relaxed);
    }

    /// Notes that a request is for this tenant.
    #[inline]
    pub(super) fn note_use(&self, tenant: &Tenant) {
        // Relaxed, and below: numbers on their own, and one that is late by a moment will do.
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        // Loaded first: of all batches in a tick one writes to the tenant's line.
        if tenant.used_ms.load(Ordering::Relaxed) < now_ms {
            // Relaxed: as above.
            tenant.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Gives back places of tenants that the program has killed, and of those that hold nothing,
    /// have no limits and were not used lately: these are killed, and what they counted stays in
    /// those above them. For a tenant of this path: while there are places, of its owner's alone.
    /// Returns whether there were any. Must not be called with a part of the index locked.
    pub(super) fn reclaim(&self, path: &str) -> bool {
        self.reclaim_at(self.clock.now(), self.places.to_ask(path).as_deref())
    }

    pub(super) fn reclaim_at(&self, began: Tick, owner: Option<&str>) -> bool {
        // A worker that finds another one looking goes on: it has other clients.
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

    /// Returns whether nobody would miss a tenant.
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
        // Not what is held, which takes a look at all tenants, for each of them.
        let usage = group.usage_at_most(self.metrics.memory);
        [usage.limit, usage.high, usage.low, usage.min].iter().any(Option::is_some)
            || group.rate(self.metrics.requests).is_some()
            || group.rate(self.metrics.cpu_budget).is_some()
            || group.weight(self.metrics.requests).is_some()
    }
}
