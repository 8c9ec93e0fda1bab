//! The lock-free map from a key's prefix to its tenant.
//!
//! A shard is a small immutable table: a change copies it, changes the copy and swaps it in.
//! Tenants come and go rarely, while every batch of requests looks them up, which costs a probe
//! under the batch's epoch guard. A lock for readers would be another cache line that all CPUs
//! write to; a concurrent map would add a second reclamation scheme. The tree's own lookup by name
//! is no substitute: it clones a handle for each request, whereas a batch borrows the tenant under
//! its guard.

use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use submeter::refs::{Guard, RcuArc, RcuSlot, pin};

use super::Tenant;

/// The tenants that have a prefix of their own.
pub(super) struct Index {
    /// The shards, a power of two of them, chosen by the upper half of the hash.
    shards: Box<[Shard]>,
    hasher: RandomState,
}

struct Shard {
    table: RcuSlot<HashTable<Entry>>,
    /// Held by the thread that replaces `table`.
    writing: Mutex<()>,
}

#[derive(Clone)]
struct Entry {
    hash: u64,
    prefix: Arc<[u8]>,
    tenant: Arc<Tenant>,
}

/// Number of tenants per shard when `tenants_max` is reached: the amount that a change copies.
pub(super) const SHARD_TENANTS: usize = 16;

/// Minimum number of shards, so that two threads rarely change the same one.
const SHARDS_MIN: usize = 64;

impl Index {
    pub(super) fn new(tenants_max: usize) -> Index {
        let shards = (tenants_max / SHARD_TENANTS).max(SHARDS_MIN).next_power_of_two();
        let shard = |_| Shard { table: RcuSlot::empty(), writing: Mutex::new(()) };
        Index { shards: (0..shards).map(shard).collect(), hasher: RandomState::new() }
    }

    #[inline]
    pub(super) fn hash(&self, prefix: &[u8]) -> u64 {
        self.hasher.hash_one(prefix)
    }

    /// Finds the tenant of a prefix, unless it is missing or was killed.
    ///
    /// A kill may come right after the check. The deletion then waits for the guard, since the
    /// table that lists the tenant has a handle to its group and is freed with its epoch.
    #[inline]
    pub(super) fn find<'g>(
        &self,
        hash: u64,
        prefix: &[u8],
        guard: &'g Guard,
    ) -> Option<&'g Arc<Tenant>> {
        let table = self.shard(hash).table.peek(guard)?.value();
        let entry = table.find(hash, |entry| *entry.prefix == *prefix)?;
        (!entry.tenant.group.is_killed()).then_some(&entry.tenant)
    }

    /// Finds the tenant of a prefix, or adds the one that `make` creates in place of a killed one.
    ///
    /// Other threads that create a tenant of this part wait in the meantime, and so does a search
    /// for killed ones here: a kill that comes during the creation is found after it.
    pub(super) fn find_or_insert<E>(
        &self,
        hash: u64,
        prefix: &[u8],
        make: impl FnOnce(Option<&Arc<Tenant>>) -> Result<Arc<Tenant>, E>,
    ) -> Result<Arc<Tenant>, E> {
        let mut result = None;
        self.change(self.shard(hash), |table| {
            let known = table.find_mut(hash, |entry| *entry.prefix == *prefix);
            if let Some(entry) = &known
                && !entry.tenant.group.is_killed()
            {
                result = Some(Ok(Arc::clone(&entry.tenant)));
                return false;
            }
            let made = make(known.as_ref().map(|entry| &entry.tenant));
            let tenant = made.as_ref().ok().cloned();
            result = Some(made);
            let Some(tenant) = tenant else { return false };
            match known {
                Some(entry) => entry.tenant = tenant,
                None => {
                    let entry = Entry { hash, prefix: prefix.into(), tenant };
                    table.insert_unique(hash, entry, |entry| entry.hash);
                }
            }
            true
        });
        // The old table refers to tenants, and a deletion waits until nothing does: the table could
        // stay in this thread's garbage until the thread produces more.
        pin().flush();
        result.expect("set by the change")
    }

    /// Shows the tenant of a prefix, if it is listed, with its part locked: it cannot leave the
    /// index in the meantime.
    pub(super) fn with(&self, prefix: &[u8], look: impl FnOnce(&Arc<Tenant>)) {
        let hash = self.hash(prefix);
        let shard = self.shard(hash);
        let _writing = shard.writing.lock();
        let guard = pin();
        if let Some(table) = shard.table.peek(&guard)
            && let Some(entry) = table.find(hash, |entry| *entry.prefix == *prefix)
        {
            look(&entry.tenant);
        }
    }

    /// Returns the tenants of one part that `which` accepts.
    pub(super) fn select(
        &self,
        shard: usize,
        which: impl Fn(&Arc<Tenant>) -> bool,
    ) -> Vec<Arc<Tenant>> {
        let guard = pin();
        let Some(table) = self.shards[shard].table.peek(&guard) else { return Vec::new() };
        table.iter().map(|entry| &entry.tenant).filter(|tenant| which(tenant)).cloned().collect()
    }

    /// Returns the number of parts, which are locked separately.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns whether a part has no tenant.
    pub(super) fn is_empty(&self, shard: usize) -> bool {
        self.shards[shard].table.is_empty()
    }

    /// Removes the killed tenants of one part, after showing them to `look`. The table that listed
    /// them is freed with its epoch, which advances when the caller is done and
    /// [flushes](submeter::refs::Guard::flush).
    pub(super) fn remove_killed(&self, shard: usize, mut look: impl FnMut(&Arc<Tenant>)) {
        let shard = &self.shards[shard];
        // Before the look, so that a creation in progress here is over.
        drop(shard.writing.lock());
        let is_killed = |entry: &Entry| entry.tenant.group.is_killed();
        if !shard.table.peek(&pin()).is_some_and(|table| table.iter().any(is_killed)) {
            return;
        }
        self.change(shard, |table| {
            table.extract_if(|entry| is_killed(entry)).for_each(|entry| look(&entry.tenant));
            true
        });
    }

    /// Removes all tenants, and returns them.
    pub(super) fn clear(&self) -> Vec<Arc<Tenant>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            self.change(shard, |table| {
                all.extend(table.drain().map(|entry| entry.tenant));
                true
            });
        }
        pin().flush();
        all
    }

    /// Replaces a table by a changed copy, if `change` returns true.
    fn change(&self, shard: &Shard, change: impl FnOnce(&mut HashTable<Entry>) -> bool) {
        let writing = shard.writing.lock();
        let guard = pin();
        let mut table =
            shard.table.peek(&guard).map_or_else(HashTable::new, |table| table.value().clone());
        if !change(&mut table) {
            return;
        }
        let before = shard.table.swap((!table.is_empty()).then(|| RcuArc::new(table)));
        drop(writing);
        if let Some(before) = before {
            RcuArc::release(before, &guard);
        }
    }

    fn shard(&self, hash: u64) -> &Shard {
        // The tables use the low bits for their buckets and the top seven as tags.
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }
}
