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

/// How many places a look frees at most. Each takes some tens of microseconds.
const FREED_MAX: usize = 32;

/// How much longer than a look that found nothing the pause after it is: where all places are in
/// use, requests for new tenants spend at most a fiftieth of a CPU on looks.
const PAUSE: u64 = 50;

/// Where the next look begins, and when.
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
    /// those above them. Returns whether there were any. Must not be called with a part of the
    /// index locked.
    pub(super) fn reclaim(&self) -> bool {
        self.reclaim_at(self.clock.now())
    }

    pub(super) fn reclaim_at(&self, began: Tick) -> bool {
        let mut reclaiming = self.reclaiming.lock();
        if began.us < reclaiming.not_before_us {
            return false;
        }
        let (mut freed, parts) = (0, self.index.shards());
        for _ in 0..parts {
            let part = reclaiming.next;
            reclaiming.next = (part + 1) % parts;
            if self.index.is_empty(part) {
                continue;
            }
            for tenant in self.index.select(part, |tenant| self.is_idle(tenant, began.ms)) {
                // Refused if it has children, which are idle too or must stay.
                let _ = tenant.group.kill();
            }
            freed += self.sweep(part);
            if freed >= FREED_MAX {
                break;
            }
        }
        pin().flush();
        if freed == 0 {
            let took_us = self.clock.now().us.saturating_sub(began.us);
            reclaiming.not_before_us = began.us + PAUSE * took_us.max(100);
        }
        freed > 0
    }

    /// Returns whether nobody would miss a tenant.
    fn is_idle(&self, tenant: &Arc<Tenant>, now_ms: u64) -> bool {
        // Relaxed: see `note_use`.
        let idle_ms = now_ms.saturating_sub(tenant.used_ms.load(Ordering::Relaxed));
        idle_ms >= IDLE_MS
            && *tenant.place.lock() != Place::Kept
            && tenant.ring.lock().is_empty()
            && tenant.group.child_count() == 0
            && !self.is_limited(&tenant.group)
    }

    /// Returns whether the program has set any limit of its own.
    fn is_limited(&self, group: &Group) -> bool {
        let usage = group.usage(self.metrics.memory);
        [usage.limit, usage.high, usage.low, usage.min].iter().any(Option::is_some)
            || group.rate(self.metrics.requests).is_some()
            || group.weight(self.metrics.requests).is_some()
    }
}
