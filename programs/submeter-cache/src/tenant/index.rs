//! The way from a key's prefix to its tenant, without a lock.
//!
//! A shard is a small immutable table: a change copies it, changes the copy and swaps it in.
//! Tenants come and go rarely, while every batch of requests looks them up, which costs a probe
//! under the batch's epoch guard. A lock for readers would be one more cache
//! line that all CPUs write to; a concurrent map would bring a second reclamation scheme. The
//! tree's own lookup by name is no substitute: it clones a handle for each request, where a batch
//! borrows the tenant under its guard.

use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use submeter::refs::{Guard, RcuArc, RcuSlot, pin};

use super::Tenant;

/// The tenants that have a prefix of their own.
pub(super) struct Index {
    /// A power of two of them, chosen by the upper half of the hash.
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

/// How many tenants a shard has when `tenants_max` is reached: what a change copies.
const SHARD_TENANTS: usize = 16;

/// The fewest shards, so that two threads rarely change the same one.
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
    /// A kill may come right after the look: then the deletion waits for the guard, as what lists
    /// the tenant has a handle to its group and is freed with its epoch.
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

    /// Adds a tenant, unless it is dying: its deletion may have looked here already.
    pub(super) fn insert(&self, hash: u64, prefix: &[u8], tenant: &Arc<Tenant>) {
        self.change(hash, |table| {
            // A tenant is killed before it is removed: if it is alive under the lock, the removal
            // comes later.
            if tenant.group.is_killed() {
                return false;
            }
            match table.find_mut(hash, |entry| *entry.prefix == *prefix) {
                Some(entry) if Arc::ptr_eq(&entry.tenant, tenant) => return false,
                Some(entry) => entry.tenant = Arc::clone(tenant),
                None => {
                    let entry = Entry { hash, prefix: prefix.into(), tenant: Arc::clone(tenant) };
                    table.insert_unique(hash, entry, |entry| entry.hash);
                }
            }
            true
        });
        // The old table refers to tenants, and a deletion waits until nothing does: it might stay
        // in this thread's garbage until the thread produces more.
        pin().flush();
    }

    /// Removes a tenant; another that has taken over its prefix stays. The table that listed it is
    /// freed with its epoch, which moves on when the caller is through and
    /// [flushes](submeter::refs::Guard::flush).
    pub(super) fn remove(&self, prefix: &[u8], tenant: &Arc<Tenant>) {
        let hash = self.hash(prefix);
        self.change(hash, |table| {
            let found = table.find_entry(hash, |entry| Arc::ptr_eq(&entry.tenant, tenant));
            found.map(|entry| entry.remove()).is_ok()
        });
    }

    /// Removes all tenants.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            drop(shard.table.take());
        }
        pin().flush();
    }

    /// Replaces a table by a changed copy, if `change` returns true.
    fn change(&self, hash: u64, change: impl FnOnce(&mut HashTable<Entry>) -> bool) {
        let shard = self.shard(hash);
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
