//! One item: a key and a value, which never change, and marks, which do.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::clock::Tick;

mod ring;

pub(crate) use ring::Ring;

/// The cost of an item in addition to its key and value: the item itself, the count in front of it,
/// its place in the table (a pointer and a byte, at worst seven eighths full and just doubled), its
/// place in its tenant's ring (a pointer, just doubled), its entry among the deadlines (in case it
/// expires, which can change) and the allocator's headers of two blocks.
pub(crate) const OVERHEAD_BYTES: u64 =
    (size_of::<Item<()>>() + COUNT + TABLE + RING + DEADLINE + HEADERS) as u64;
const COUNT: usize = size_of::<usize>();
const TABLE: usize = 2 * (size_of::<usize>() + 1);
const RING: usize = 2 * size_of::<usize>();
/// When an item is due, in milliseconds on the store's scale, and the hash of its key.
pub(crate) type Deadline = Reverse<(u64, u64)>;
/// Shards keep one and a half entries per item, in a heap that has just grown by a quarter.
const DEADLINE: usize = size_of::<Deadline>() * 3 / 2 * 5 / 4;
const HEADERS: usize = 2 * size_of::<usize>();

/// A value under a key. It is shared by the table, its tenant's ring and every large answer on its
/// way, so that sending holds no lock and copies nothing. A reader that only looks, or copies a
/// small value, takes no reference: the epoch guard keeps the memory.
///
/// Rules: the ring's lock guards `slot`. The shard's lock guards the writes of the other atomics,
/// and the decisions that depend on them. Eviction reads two of them as hints.
pub(crate) struct Item<T> {
    /// Key, value and line end, as they are sent.
    data: Box<[u8]>,
    hash: u64,
    /// Weak, because an item's memory outlives the item, and a deleted tenant must not wait for
    /// that. While the item is stored, its ring keeps the tenant.
    tenant: Weak<T>,
    expires_ms: AtomicU64,
    accessed_us: AtomicU64,
    cas: AtomicU64,
    slot: AtomicU32,
    pub(crate) client_flags: u32,
    marks: AtomicU8,
    key_len: u8,
}

/// The item was fetched since it was stored.
pub(crate) const FETCHED: u8 = 1;
/// The item was invalidated; clients may use it until one of them has renewed it.
pub(crate) const STALE: u8 = 2;
/// A client was told to renew the item.
pub(crate) const WON: u8 = 4;
/// The item's key came in base64.
pub(crate) const BINARY_KEY: u8 = 8;

/// An item about to be stored, as the client describes it.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    /// Two parts, so that appending needs no buffer of its own.
    pub(crate) value: [&'a [u8]; 2],
    pub(crate) client_flags: u32,
    pub(crate) expires_ms: u64,
    pub(crate) marks: u8,
}

impl Draft<'_> {
    fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    /// Returns the bytes that are charged for it.
    pub(crate) fn cost(&self) -> u64 {
        OVERHEAD_BYTES + (self.key.len() + self.value_len() + 2) as u64
    }
}

impl<T> Item<T> {
    pub(crate) fn new(draft: Draft<'_>, hash: u64, tenant: &Arc<T>, now: Tick) -> Item<T> {
        let mut data = Vec::with_capacity(draft.key.len() + draft.value_len() + 2);
        data.extend_from_slice(draft.key);
        data.extend_from_slice(draft.value[0]);
        data.extend_from_slice(draft.value[1]);
        data.extend_from_slice(b"\r\n");
        Item {
            data: data.into_boxed_slice(),
            hash,
            tenant: Arc::downgrade(tenant),
            expires_ms: AtomicU64::new(draft.expires_ms),
            accessed_us: AtomicU64::new(now.us),
            cas: AtomicU64::new(0),
            slot: AtomicU32::new(0),
            client_flags: draft.client_flags,
            marks: AtomicU8::new(draft.marks),
            // The parser accepts no longer key.
            key_len: u8::try_from(draft.key.len()).unwrap_or(u8::MAX),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.data[..usize::from(self.key_len)]
    }

    /// Returns the value followed by the line end.
    pub(crate) fn value_line(&self) -> &[u8] {
        &self.data[usize::from(self.key_len)..]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.data[usize::from(self.key_len)..self.data.len() - 2]
    }

    /// Returns its tenant; `None` only after the item has left the store.
    pub(crate) fn tenant(&self) -> Option<Arc<T>> {
        self.tenant.upgrade()
    }

    pub(crate) fn tenant_ptr(&self) -> *const T {
        self.tenant.as_ptr()
    }

    pub(crate) fn is_of(&self, tenant: &Arc<T>) -> bool {
        std::ptr::eq(self.tenant_ptr(), Arc::as_ptr(tenant))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the bytes charged for it, the same as for its draft.
    pub(crate) fn cost(&self) -> u64 {
        OVERHEAD_BYTES + self.data.len() as u64
    }

    pub(crate) fn cas(&self) -> u64 {
        // Relaxed: the shard's lock orders it, see the rules of [`Item`].
        self.cas.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cas(&self, cas: u64) {
        // Relaxed: the shard's lock orders it, see the rules of [`Item`].
        self.cas.store(cas, Ordering::Relaxed);
    }

    /// Returns when it expires; 0 means never.
    pub(crate) fn expires_ms(&self) -> u64 {
        // Relaxed: the shard's lock orders it; to eviction it is a hint.
        self.expires_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_expires_ms(&self, at_ms: u64) {
        // Relaxed: the shard's lock orders it, see the rules of [`Item`].
        self.expires_ms.store(at_ms, Ordering::Relaxed);
    }

    pub(crate) fn accessed_us(&self) -> u64 {
        // Relaxed: the shard's lock orders it; to eviction it is a hint.
        self.accessed_us.load(Ordering::Relaxed)
    }

    pub(crate) fn marks(&self) -> u8 {
        // Relaxed: the shard's lock orders it, see the rules of [`Item`].
        self.marks.load(Ordering::Relaxed)
    }

    pub(crate) fn set_marks(&self, marks: u8) {
        // Relaxed: the shard's lock orders it, see the rules of [`Item`].
        self.marks.store(marks, Ordering::Relaxed);
    }

    /// Records a use other than a fetch.
    pub(crate) fn used(&self, now: Tick) {
        // Relaxed: the shard's lock orders it; to eviction it is a hint.
        self.accessed_us.store(now.us, Ordering::Relaxed);
    }

    /// Records a fetch.
    pub(crate) fn bump(&self, now: Tick) {
        self.used(now);
        let marks = self.marks();
        if marks & FETCHED == 0 {
            self.set_marks(marks | FETCHED);
        }
    }

    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        let expires_ms = self.expires_ms();
        expires_ms != 0 && expires_ms <= now_ms
    }

    fn slot(&self) -> usize {
        // Relaxed: the ring's lock orders it, see the rules of [`Item`].
        self.slot.load(Ordering::Relaxed) as usize
    }

    fn set_slot(&self, slot: usize) {
        // A ring of 2^32 items would take half a terabyte of overhead alone.
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        // Relaxed: the ring's lock orders it, see the rules of [`Item`].
        self.slot.store(slot, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({} bytes)", self.cost())
    }
}
