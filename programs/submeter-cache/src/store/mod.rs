//! The store of items: a hash table in shards, each behind a lock.
//!
//! The table is `hashbrown`'s under `parking_lot`'s locks, not a concurrent map: nearly every
//! command looks, decides and changes in one step (compare a `cas`, count up, win a recache), and
//! finds an entry by the key inside the item, so that the key is stored once. `dashmap` has the
//! same design but keeps its own copy of the key; `papaya` would repeat the step under contention.
//!
//! A lock is held to find and to change, never while a value is copied or sent: the item that was
//! found stays in memory under the batch's epoch guard, without a counted reference. An item's
//! charge is given back when it leaves, its memory after a grace period; `garbage` bounds the
//! memory in between.

mod deadlines;
mod evict;
mod garbage;
mod purge;
mod reclaim;
mod victims;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;
use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use submeter::refs::{Guard, RcuArc, RcuBorrow, pin};
use submeter::{Bytes, Charge, Count, Counter, Gauge, LimitError, Quota};

use crate::clock::{Clock, Tick};
use crate::config::Config;
use crate::item::{Draft, FETCHED};
use crate::limits::TenantLimits;
use crate::metrics::Metrics;
use crate::statistics::{Total, Totals};
use crate::tenant::{Item, Tenant, Tenants};

use deadlines::{Deadlines, NEVER_MS};
pub(crate) use garbage::{collect_if_due, is_due, let_go};

/// The number of shards: far more than threads on today's machines, so that two rarely meet, and
/// few enough to keep an empty cache small. A power of two.
const SHARDS: usize = 256;

/// All items of a cache.
pub(crate) struct Store {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    hasher: RandomState,
    pub(crate) clock: Clock,
    pub(crate) totals: Totals,
    tenants: Arc<Tenants>,
    metering: bool,
    /// Whether live items may be dropped to make room.
    evictions_allowed: bool,
    garbage: garbage::Bound,
    memory: Quota<Bytes>,
    items: Gauge<Count>,
    evictions: Counter<Count>,
    over_high: Counter<Count>,
    expired: Counter<Count>,
    /// Whether any tenant has a `high`, so that stores need not look for one.
    has_high: AtomicBool,
    /// Whether any tenant has a `low` or `min`.
    has_protection: AtomicBool,
    /// When a delayed `flush_all` is due; `u64::MAX` means never.
    flush_at_ms: AtomicU64,
    /// When the soonest deadline of any shard is due, or an earlier time.
    next_due_ms: AtomicU64,
    /// The shard where the next search for expired items begins.
    first_shard: AtomicUsize,
}

struct Shard {
    table: HashTable<RcuArc<Item>>,
    deadlines: Deadlines,
    /// The last assigned `cas`. Shards count in strides, so that no two items ever have the same
    /// one.
    cas: u64,
}

/// The locked slot of one key. What is found there stays readable while the guard lives, which is
/// longer than the lock is held.
pub(crate) struct Slot<'s, 'g> {
    store: &'s Store,
    shard: MutexGuard<'s, Shard>,
    key: &'s [u8],
    hash: u64,
    now: Tick,
    guard: &'g Guard,
    /// Whether an item was found and had expired.
    found_expired: bool,
}

/// Why an item leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Replaced,
    Expired,
    Evicted,
}

impl Store {
    pub(crate) fn new(
        metrics: &Metrics,
        config: &Config,
        totals: Totals,
        tenants: Arc<Tenants>,
    ) -> Store {
        let shard = |index| Shard {
            table: HashTable::new(),
            deadlines: Deadlines::default(),
            cas: index as u64,
        };
        Store {
            shards: (0..SHARDS).map(|i| CachePadded::new(Mutex::new(shard(i)))).collect(),
            hasher: RandomState::new(),
            clock: Clock::new(),
            totals,
            tenants,
            metering: config.metering,
            evictions_allowed: config.evictions,
            garbage: garbage::Bound::of(config.memory_max),
            memory: metrics.memory,
            items: metrics.items,
            evictions: metrics.evictions,
            over_high: metrics.over_high,
            has_high: AtomicBool::new(false),
            has_protection: AtomicBool::new(false),
            expired: metrics.expired,
            flush_at_ms: AtomicU64::new(u64::MAX),
            next_due_ms: AtomicU64::new(NEVER_MS),
            first_shard: AtomicUsize::new(0),
        }
    }

    /// Locks the slot of `key`.
    pub(crate) fn slot<'s, 'g>(
        &'s self,
        key: &'s [u8],
        now: Tick,
        guard: &'g Guard,
    ) -> Slot<'s, 'g> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash).lock();
        Slot { store: self, shard, key, hash, now, guard, found_expired: false }
    }

    /// Charges a tenant for an item, and makes room where a limit refuses.
    ///
    /// # Errors
    /// When no room can be made. Must not be called with a slot locked, as room is made in any
    /// shard.
    pub(crate) fn charge(
        &self,
        tenant: &Arc<Tenant>,
        bytes: u64,
        now: Tick,
    ) -> Result<Charge, LimitError> {
        let charge = match tenant.group.try_charge(self.memory, bytes) {
            Ok(charge) => charge,
            Err(error) => evict::make_room(self, tenant, error, now)?,
        };
        // Relaxed: see `heed`.
        if self.has_high.load(Ordering::Relaxed) {
            evict::shrink(self, tenant, bytes, now);
        }
        Ok(charge)
    }

    /// Waits until enough of what has left is free. For connections that released something.
    pub(crate) async fn keep_garbage_low(&self) {
        self.garbage.keep().await;
    }

    /// The same as [`evict::yield_excess`].
    pub(crate) fn yield_excess(&self, tenant: &Arc<Tenant>) {
        evict::yield_excess(self, tenant, self.clock.now());
    }

    /// Records which kinds of limits exist, after they were set.
    pub(crate) fn heed(&self, limits: &[(String, TenantLimits)]) {
        let any = |has: fn(&TenantLimits) -> bool| limits.iter().any(|(_, limits)| has(limits));
        // Relaxed, both: a store that misses them came before.
        self.has_high.store(any(|limits| limits.high.is_some()), Ordering::Relaxed);
        let protects = any(|limits| limits.low.is_some() || limits.min.is_some());
        self.has_protection.store(protects, Ordering::Relaxed);
    }

    fn has_protection(&self) -> bool {
        // Relaxed: see `heed`.
        self.has_protection.load(Ordering::Relaxed)
    }

    /// Counts the items.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().table.len()).sum()
    }

    /// Drops every item now.
    pub(crate) fn flush(&self) {
        for shard in &self.shards {
            // Outside of the lock: giving back many charges takes time.
            let items = {
                let mut shard = shard.lock();
                shard.deadlines.clear();
                std::mem::take(&mut shard.table)
            };
            for item in items {
                self.leave(item, Leave::Replaced);
            }
        }
    }

    /// Drops every item at `at_ms`; replaces an earlier appointment.
    pub(crate) fn flush_at(&self, at_ms: u64) {
        // Relaxed: nothing else is published with the appointment.
        self.flush_at_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Flushes if an appointment is due. Cheap when there is none, since every batch calls it.
    pub(crate) fn flush_if_due(&self, now: Tick) {
        // Relaxed: as in `flush_at`; the exchange makes exactly one caller flush.
        let at_ms = self.flush_at_ms.load(Ordering::Relaxed);
        if at_ms <= now.ms {
            let swap = self.flush_at_ms.compare_exchange(
                at_ms,
                u64::MAX,
                // Relaxed: as above.
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if swap.is_ok() {
                self.flush();
            }
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table uses the low bits for its buckets and the top seven as tags.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Removes an item if it is still the one under its key.
    fn unlink(&self, item: &Item, why: Leave) -> bool {
        let mut shard = self.shard(item.hash()).lock();
        // The caller holds a guard or a reference: no other item can be at its address.
        let found = shard.table.find_entry(item.hash(), |held| std::ptr::eq(&**held, item));
        let Ok(entry) = found else { return false };
        let (item, _) = entry.remove();
        drop(shard);
        self.leave(item, why);
        true
    }

    /// Does what follows when an item has left its shard's table.
    ///
    /// The caller that removed it from the table calls this exactly once, with or without the
    /// shard's lock: until then only an eviction can find the item, and it then sees that the item
    /// is gone.
    fn leave(&self, item: RcuArc<Item>, why: Leave) {
        // Never missing: an item in the table is in its tenant's ring, which keeps the tenant.
        let Some(tenant) = item.tenant() else { return };
        if self.metering {
            let group = &tenant.group;
            group.adjust(self.items, -1);
            let fetched = item.marks() & FETCHED != 0;
            match why {
                Leave::Replaced => {}
                Leave::Expired => {
                    group.add(self.expired, 1);
                    self.totals.count_if(!fetched, Total::ExpiredUnfetched);
                }
                Leave::Evicted => {
                    group.add(self.evictions, 1);
                    self.totals.count_if(!fetched, Total::EvictedUnfetched);
                }
            }
        }
        Store::let_go(item, &tenant);
    }

    /// Gives back an item's charge at once, and its memory after a grace period.
    fn let_go(item: RcuArc<Item>, tenant: &Tenant) {
        let guard = pin();
        let removed = tenant.ring.lock().remove(&item);
        garbage::count(item.cost());
        RcuArc::release(removed.item, &guard);
        RcuArc::release(item, &guard);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl<'g> Slot<'_, 'g> {
    /// Finds the item, or drops it if it has expired.
    pub(crate) fn item(&mut self) -> Option<&'g Item> {
        self.find().map(RcuBorrow::value)
    }

    /// The same as [`item`](Slot::item), for a caller that may want to keep the item beyond the
    /// guard.
    pub(crate) fn find(&mut self) -> Option<RcuBorrow<'g, Item>> {
        let Slot { store, shard, key, hash, now, guard, found_expired } = self;
        let entry = shard.table.find_entry(*hash, |item| item.key() == *key).ok()?;
        if entry.get().is_expired(now.ms) {
            *found_expired = true;
            let (item, _) = entry.remove();
            store.leave(item, Leave::Expired);
            return None;
        }
        Some(RcuArc::borrow(entry.get(), guard))
    }

    /// Puts an item here in place of any earlier one, under a new `cas` or the given one.
    pub(crate) fn put(
        &mut self,
        draft: Draft<'_>,
        tenant: &Arc<Tenant>,
        charge: Charge,
        cas: Option<u64>,
    ) -> u64 {
        let item = Item::new(draft, self.hash, tenant, self.now);
        let cas = cas.unwrap_or_else(|| self.next_cas());
        item.set_cas(cas);
        self.store.totals.count(Total::Items);
        self.file(draft.expires_ms);
        let item = RcuArc::new(item);
        // Into the ring before the table: an item in the table is always in a ring, which `leave`
        // relies on. The shard's lock hides the moment in between from evictions.
        tenant.ring.lock().insert(item.clone(), charge, tenant);
        let key = self.key;
        match self.shard.table.find_mut(self.hash, |held| held.key() == key) {
            // Nearly always an item of the same tenant, whose number of items then stays the same.
            Some(held) if held.is_of(tenant) => {
                Store::let_go(std::mem::replace(held, item), tenant);
                return cas;
            }
            Some(held) => {
                let before = std::mem::replace(held, item);
                self.store.leave(before, Leave::Replaced);
            }
            None => {
                self.shard.table.insert_unique(self.hash, item, |item| item.hash());
            }
        }
        if self.store.metering {
            tenant.group.adjust(self.store.items, 1);
        }
        cas
    }

    /// Changes when an item that was found here expires; 0 means never.
    pub(crate) fn expire_at(&mut self, item: &Item, at_ms: u64) {
        let before_ms = item.expires_ms();
        item.set_expires_ms(at_ms);
        // Its entry suffices unless it is due too late or missing.
        if before_ms == 0 || at_ms < before_ms {
            self.file(at_ms);
        }
    }

    /// Makes sure that an item that expires here at `at_ms` is found then.
    fn file(&mut self, at_ms: u64) {
        if at_ms != 0 {
            self.shard.deadlines.file(at_ms, self.hash);
            self.store.due_at(at_ms);
            self.shard.bound_deadlines();
        }
    }

    /// Returns whether an expired item was found here.
    pub(crate) fn found_expired(&self) -> bool {
        self.found_expired
    }

    /// Drops the item, if there is one.
    pub(crate) fn remove(&mut self) {
        let key = self.key;
        if let Ok(entry) = self.shard.table.find_entry(self.hash, |item| item.key() == key) {
            let (item, _) = entry.remove();
            self.store.leave(item, Leave::Replaced);
        }
    }

    /// Returns a number that no item of this store has had, greater than any that this key has had.
    pub(crate) fn next_cas(&mut self) -> u64 {
        self.shard.cas += SHARDS as u64;
        self.shard.cas
    }

    /// Charges a tenant with the slot locked, without making room.
    pub(crate) fn try_charge(&self, tenant: &Tenant, bytes: u64) -> Result<Charge, LimitError> {
        tenant.group.try_charge(self.store.memory, bytes)
    }

    pub(crate) fn now(&self) -> Tick {
        self.now
    }
}
