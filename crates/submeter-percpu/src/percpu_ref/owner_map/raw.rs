//! The map, and every pointer that it follows.
//!
//! Everything here rests on three facts, and each SAFETY comment names those it uses:
//!
//! 1. **Owned.** Each object in the index stands for one count of its `Arc`, which `insert` put in
//!    and `retire` takes back once, since the index gives each object back once. Upheld by `Index`,
//!    whose mutating methods are called only by `Writing`, with the lock held.
//! 2. **Freed last.** Memory that was in the index is freed after a grace period that begins once
//!    it was taken out, so that a guard keeps every object found under it. Upheld by `retire`.
//! 3. **Still.** While the lock is held for reading nothing is put in or taken out, and no table is
//!    replaced. Upheld by `Writing`: nothing else changes the index.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use crate::percpu_ref::arc::{PercpuArc, PercpuOwner, Reference, Shared};
use crate::percpu_ref::index::Index;
use crate::process_lock::ProcessRwLock;
use crate::rcuref::{Guard, pin, unguarded};

/// Owners of shared values by their names. A lookup takes no lock, and returns a pointer.
///
/// A lookup costs one probe and a [`PercpuOwner::try_clone_live`]: apart from its [`Guard`], it
/// writes to no memory that CPUs share. Changes take a lock, and occasionally the time to copy the
/// table. Lookups never wait, and a change never waits for lookups: a removed entry keeps its
/// memory, though not its value, for a grace period. Occasionally a new guard frees entries that
/// others removed, some hundreds at most.
///
/// The caller hashes, and compares the names set by [`Options::name`]: such a name may be part of
/// the key, or the key part of the name. Where names come from untrusted sources, the hash must be
/// keyed. For values that no thread kills, a `HashMap` behind a lock is simpler.
///
/// Its drop kills the values left in it.
///
/// # Examples
/// ```
/// use submeter_percpu::PercpuArc;
/// use submeter_percpu::percpu_ref::{Options, OwnerMap};
/// use submeter_percpu::rcuref::pin;
///
/// let map = OwnerMap::default();
/// let (owner, _) = PercpuArc::with(Options::new().name("web"), 7)?;
/// map.write().insert(1, owner, |name| name == "web");
///
/// assert_eq!(map.get(1, |name| name == "web", &pin()).as_deref(), Some(&7));
/// let owner = map.write().remove(1, |name| name == "web").expect("inserted above");
/// assert!(map.get(1, |name| name == "web", &pin()).is_none());
/// owner.kill();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Ordering
/// A thread that finds a value sees everything that was done to it before its owner was inserted.
///
/// [`Options::name`]: crate::percpu_ref::Options::name
pub struct OwnerMap<T: 'static> {
    lock: ProcessRwLock<()>,
    index: Index<Shared<T>>,
    /// The index holds plain pointers: this decides whether the map is `Send` and `Sync`.
    owns: PhantomData<PercpuOwner<T>>,
}

/// A map locked against changes; other threads may read and look up.
///
/// It holds no [`Guard`]: a map may be read with other locks held, and making a guard may collect
/// garbage, as below.
pub struct Reading<'a, T: 'static> {
    map: &'a OwnerMap<T>,
    _lock: RwLockReadGuard<'a, ()>,
}

/// A map locked against changes and readers; other threads may look up.
///
/// It holds a [`Guard`], which was made before the lock was taken and is dropped after the lock is
/// released: making or flushing a guard collects garbage, which runs the drops of any value in the
/// process, and a drop may take the same lock.
pub struct Writing<'a, T: 'static> {
    map: &'a OwnerMap<T>,
    _lock: RwLockWriteGuard<'a, ()>,
    guard: Guard,
}

impl<T: Send + Sync + 'static> OwnerMap<T> {
    /// Finds the owner with this hash whose name `is` accepts, and returns a pointer to its value;
    /// `None` if there is no such owner, or it was killed.
    ///
    /// Never `None` for an owner that is in the map and alive throughout the call.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get(&self, hash: u64, is: impl Fn(&str) -> bool, guard: &Guard) -> Option<PercpuArc<T>> {
        let is = |shared| {
            // SAFETY: 2 (freed last): it was in the index while `guard` existed.
            is(unsafe { name(shared) })
        };
        let shared = self.index.find(hash as usize, guard, is)?;
        // SAFETY: 2 (freed last): it was in the index while `guard` existed.
        let reference = unsafe { Reference::try_of(shared, true) }?;
        Some(PercpuArc { reference })
    }

    /// Returns how many owners there are; the number may be stale when it is returned.
    #[must_use]
    pub fn len(&self, guard: &Guard) -> usize {
        self.index.len(guard)
    }

    /// Returns whether no owner was ever inserted, or none since [`take`](Writing::take). A plain
    /// load, without a guard or a lock, for walks of many maps that are mostly empty.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.index.is_unused()
    }

    /// Locks the map for reading: waits until no thread writes.
    ///
    /// # Panics
    /// When a fork left a writer behind.
    #[must_use]
    pub fn read(&self) -> Reading<'_, T> {
        Reading { map: self, _lock: self.lock.read() }
    }

    /// Locks the map for writing: waits until no other thread reads or writes.
    ///
    /// # Panics
    /// When a fork left a holder behind.
    #[must_use]
    pub fn write(&self) -> Writing<'_, T> {
        let guard = pin();
        Writing { map: self, _lock: self.lock.write(), guard }
    }
}

impl<T: Send + Sync + 'static> Reading<'_, T> {
    /// Returns a pointer to each value that was not killed, in no order.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn clone_live(&self) -> Vec<PercpuArc<T>> {
        // SAFETY: 1 and 2. 3 (still): `self` has the lock, and the guard is used only in here, to
        // look at the table.
        let guard = unsafe { unguarded() };
        let mut live = Vec::with_capacity(self.map.len(guard));
        // No closure: it would hide the caller's location.
        for shared in self.map.index.iter(guard) {
            // SAFETY: 3 (still): it is in the index, which owns it (1), until the lock is released.
            if let Some(reference) = unsafe { Reference::try_of(shared, true) } {
                live.push(PercpuArc { reference });
            }
        }
        live
    }
}

impl<T: Send + Sync + 'static> Writing<'_, T> {
    /// The same as [`OwnerMap::get`].
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get(&self, hash: u64, is: impl Fn(&str) -> bool) -> Option<PercpuArc<T>> {
        self.map.get(hash, is, &self.guard)
    }

    /// Inserts an owner whose name `is` accepts. Returns the owner that it replaces, if there was
    /// one with such a name.
    pub fn insert(
        &mut self,
        hash: u64,
        owner: PercpuOwner<T>,
        is: impl Fn(&str) -> bool,
    ) -> Option<PercpuOwner<T>> {
        let Writing { map, guard, .. } = self;
        let shared = Shared::pointer(&owner.shared);
        // 1 (owned): its count belongs to the index from here on.
        mem::forget(owner);
        let is = |old| {
            // SAFETY: 2 (freed last): it is in the index, and the guard exists.
            is(unsafe { name(old) })
        };
        let old = map.index.insert(hash as usize, shared, guard, is)?;
        // SAFETY: 1 (owned): the index has just given it back.
        Some(unsafe { retire(old, guard) })
    }

    /// Removes the owner with this hash whose name `is` accepts.
    pub fn remove(&mut self, hash: u64, is: impl Fn(&str) -> bool) -> Option<PercpuOwner<T>> {
        let Writing { map, guard, .. } = self;
        let is = |old| {
            // SAFETY: 2 (freed last): it is in the index, and the guard exists.
            is(unsafe { name(old) })
        };
        let old = map.index.remove(hash as usize, guard, is)?;
        // SAFETY: 1 (owned): the index has just given it back.
        Some(unsafe { retire(old, guard) })
    }

    /// Removes all owners, and returns them in no order.
    pub fn take(&mut self) -> Vec<PercpuOwner<T>> {
        let all = self.map.index.take(&self.guard).into_iter();
        // SAFETY: 1 (owned): the index has just given each back.
        all.map(|shared| unsafe { retire(shared, &self.guard) }).collect()
    }

    /// Returns the number of owners.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len(&self.guard)
    }

    /// Returns whether there are no owners.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: 'static> Default for OwnerMap<T> {
    fn default() -> OwnerMap<T> {
        OwnerMap { lock: ProcessRwLock::default(), index: Index::new(), owns: PhantomData }
    }
}

impl<T: 'static> Drop for OwnerMap<T> {
    fn drop(&mut self) {
        for shared in self.index.end() {
            // SAFETY: 1 (owned): the index has just given it back. 2. No lookup is under way, since
            // each borrows the map.
            drop(PercpuOwner { shared: unsafe { Arc::from_raw(shared.as_ptr()) } });
        }
    }
}

impl<T: 'static> fmt::Debug for OwnerMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerMap").field("len", &self.index.len(&pin())).finish_non_exhaustive()
    }
}

/// Returns an object's name.
///
/// # Safety
/// Its memory lives for `'a`.
#[inline]
unsafe fn name<'a, T>(shared: NonNull<Shared<T>>) -> &'a str {
    // SAFETY: 1. The memory lives: the caller's promise. 2. The value is not borrowed: another
    // thread may be dropping it.
    unsafe { Shared::core_at(shared) }.name()
}

/// Turns an object into its owner, and keeps its memory for a grace period.
///
/// # Safety
/// The object was inserted, and the index has given it back, to this caller only and only once.
unsafe fn retire<T: Send + Sync + 'static>(
    shared: NonNull<Shared<T>>,
    guard: &Guard,
) -> PercpuOwner<T> {
    // SAFETY: 1 (owned): the count that `insert` left to the index.
    let shared = unsafe { Arc::from_raw(shared.as_ptr()) };
    // One more count, for readers that have found the object and not counted yet. Dropping it can
    // only drop a name and per-CPU words: values end with their last references, not with their
    // memory.
    let kept = Arc::clone(&shared);
    guard.defer(move || drop(kept));
    PercpuOwner { shared }
}
