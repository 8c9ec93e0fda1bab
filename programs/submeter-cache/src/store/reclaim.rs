//! Drops expired items: when a limit refuses a charge, before anything live is evicted, and
//! periodically in the background.
//!
//! A hint, the soonest time at which anything is due in any shard, reduces the cost to a load when
//! there is nothing to drop. Without it each eviction would visit all shards.

use std::sync::atomic::Ordering;

use submeter::refs::RcuArc;

use super::deadlines::NEVER_MS;
use super::{Leave, SHARDS, Shard, Store, garbage};
use crate::clock::Tick;
use crate::statistics::Total;
use crate::tenant::Item;

/// Maximum number of entries that the background processes in one go: some hundred microseconds.
const SWEEP_MAX: usize = 512;

/// The result of a search for expired items.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reclaimed {
    /// Entries that were due, including those that items had left behind.
    pub(super) looked: usize,
    /// Items dropped.
    pub(super) dropped: usize,
}

impl Store {
    /// Processes up to `max` due entries, and drops the expired items of any tenant. Processes
    /// fewer only if no more were due. Must not be called with a slot locked.
    ///
    /// While it runs, another thread may read the hint as empty and find nothing.
    pub(super) fn reclaim(&self, now: Tick, max: usize) -> Reclaimed {
        let mut done = Reclaimed::default();
        // Relaxed: a hint; the shards' locks order what it hints at.
        if self.next_due_ms.load(Ordering::Relaxed) > now.ms {
            return done;
        }
        // Relaxed: each shard lowers it again under its lock, before or after the visit below.
        // Entries filed before a visit are seen by it; entries filed after the visit lower the hint
        // after this store.
        self.next_due_ms.store(NEVER_MS, Ordering::Relaxed);
        // Not always the same one first: a small `max` would never reach the last. Relaxed: any
        // number will do.
        let first = self.first_shard.fetch_add(1, Ordering::Relaxed);
        for index in 0..SHARDS {
            let mut shard = self.shards[(first + index) % SHARDS].lock();
            let mut expired = Vec::new();
            done.looked += shard.expired(now, max - done.looked, &mut expired);
            self.due_at(shard.deadlines.next_ms());
            drop(shard);
            done.dropped += expired.len();
            for item in expired {
                self.totals.count(Total::Reclaimed);
                self.leave(item, Leave::Expired);
            }
            if done.looked == max {
                // The other shards were not visited: their items may be due now.
                self.due_at(0);
                break;
            }
        }
        done
    }

    /// Lowers the hint. Called with the lock of the shard in which something was filed.
    pub(super) fn due_at(&self, at_ms: u64) {
        // Relaxed: see `reclaim`. The load avoids a write to the line where nothing changes.
        if at_ms < self.next_due_ms.load(Ordering::Relaxed) {
            // Relaxed: as above.
            self.next_due_ms.fetch_min(at_ms, Ordering::Relaxed);
        }
    }

    /// Drops some expired items, tidies the shard chosen by `round`, and frees what was released
    /// before. Returns whether more may be due.
    pub(crate) fn sweep(&self, round: usize, now: Tick) -> bool {
        let more = self.reclaim(now, SWEEP_MAX).looked == SWEEP_MAX;
        if !more {
            self.shards[round % SHARDS].lock().bound_deadlines();
            garbage::clear();
        }
        more
    }
}

impl Shard {
    /// Processes up to `max` due entries, and removes the items that have expired.
    fn expired(&mut self, now: Tick, max: usize, expired: &mut Vec<RcuArc<Item>>) -> usize {
        for looked in 0..max {
            let Some(hash) = self.deadlines.pop(now.ms) else { return looked };
            let same = |item: &RcuArc<Item>| item.hash() == hash;
            let dead = |item: &RcuArc<Item>| same(item) && item.is_expired(now.ms);
            if let Ok(entry) = self.table.find_entry(hash, dead) {
                expired.push(entry.remove().0);
            } else if let Some(item) = self.table.find(hash, same)
                && item.expires_ms() != 0
            {
                // The item was touched, or stored again, since it was filed.
                let at_ms = item.expires_ms();
                self.deadlines.file(at_ms, hash);
            }
        }
        max
    }

    /// Rebuilds the entries from the items if too many were left behind.
    pub(super) fn bound_deadlines(&mut self) {
        if self.deadlines.is_over(self.table.len()) {
            self.deadlines.renew(self.table.iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use submeter::refs::pin;

    use super::*;
    use crate::item::Draft;
    use crate::tenant::Resolver;
    use crate::{Cache, Config};

    const PAST_MS: u64 = 1;
    const FUTURE_MS: u64 = u64::MAX - 1;

    fn cache() -> Cache {
        Cache::new(Config::default()).expect("the configuration is sound")
    }

    fn put(cache: &Cache, key: &[u8], expires_ms: u64) {
        let guard = pin();
        let resolver = Resolver::new(cache.tenants(), &guard);
        let tenant = resolver.tenant(crate::tenant::Account::ROOT);
        let now = cache.store().clock.now();
        let value = [&b"v"[..], b""];
        let draft = Draft { key, value, client_flags: 0, expires_ms, marks: 0 };
        let charge = cache.store().charge(tenant, draft.cost(), now).expect("there is room");
        cache.store().slot(key, now, &guard).put(draft, tenant, charge, None);
    }

    /// Returns whether any shard has more deadlines than its items may have.
    fn is_over(cache: &Cache) -> bool {
        cache.store().shards.iter().any(|shard| {
            let shard = shard.lock();
            shard.deadlines.is_over(shard.table.len())
        })
    }

    /// A key that is stored repeatedly leaves few deadlines behind.
    #[test]
    fn repeated_stores_leave_few_deadlines() {
        let cache = cache();
        for n in 0..10_000 {
            put(&cache, b"k", FUTURE_MS - n);
        }
        assert!(!is_over(&cache));
    }

    /// A key that is touched repeatedly leaves few deadlines behind.
    #[test]
    fn repeated_touches_leave_few_deadlines() {
        let cache = cache();
        put(&cache, b"k", 0);
        let guard = pin();
        for n in 0..10_000 {
            let mut slot = cache.store().slot(b"k", cache.store().clock.now(), &guard);
            let item = slot.item().expect("it was put");
            slot.expire_at(item, if n % 2 == 0 { 0 } else { FUTURE_MS - n });
        }
        assert!(!is_over(&cache));
    }

    /// Deadlines left behind by removals are dropped in the background.
    #[test]
    fn removals_deadlines_are_forgotten() {
        let cache = cache();
        let guard = pin();
        let keys = || (0..30_000).map(|n: u32| n.to_string());
        keys().for_each(|key| put(&cache, key.as_bytes(), FUTURE_MS));
        let now = cache.store().clock.now();
        keys().for_each(|key| cache.store().slot(key.as_bytes(), now, &guard).remove());
        assert!(is_over(&cache));
        for round in 0..SHARDS {
            cache.store().sweep(round, now);
        }
        assert!(!is_over(&cache));
    }

    /// A deadline that a search found too early is found again later.
    #[test]
    fn a_later_deadline_is_found_again() {
        let cache = cache();
        let now = cache.store().clock.now();
        let later = Tick { ms: now.ms + 60_000, us: now.us + 60_000_000 };
        put(&cache, b"soon", PAST_MS);
        put(&cache, b"later", later.ms);
        // Touched: its deadline is found too early, and must be filed again.
        put(&cache, b"touched", PAST_MS + 1);
        let guard = pin();
        let mut slot = cache.store().slot(b"touched", Tick { ms: 0, us: 0 }, &guard);
        let item = slot.item().expect("it was put");
        slot.expire_at(item, later.ms);
        drop(slot);
        assert_eq!(cache.store().reclaim(now, 100).dropped, 1);
        assert_eq!(cache.store().reclaim(Tick { ms: later.ms - 1, ..later }, 100).looked, 0);
        assert_eq!(cache.store().reclaim(later, 100).dropped, 2);
        assert_eq!(cache.store().len(), 0);
    }

    /// One search does no more than it is allowed, and the next one continues from there.
    #[test]
    fn a_search_stops_and_the_next_goes_on() {
        let cache = cache();
        for n in 0..1000 {
            put(&cache, n.to_string().as_bytes(), if n % 10 == 0 { FUTURE_MS } else { PAST_MS });
            // Half of the expiring items leave only their deadlines behind.
            if n % 2 == 1 {
                let guard = pin();
                let now = cache.store().clock.now();
                cache.store().slot(n.to_string().as_bytes(), now, &guard).remove();
            }
        }
        let now = cache.store().clock.now();
        let (mut looked, mut dropped) = (0, 0);
        loop {
            let done = cache.store().reclaim(now, 7);
            assert!(done.looked <= 7 && done.dropped <= done.looked, "{done:?}");
            looked += done.looked;
            dropped += done.dropped;
            if done.looked == 0 {
                break;
            }
        }
        assert_eq!((looked, dropped, cache.store().len()), (900, 400, 100));
    }
}
