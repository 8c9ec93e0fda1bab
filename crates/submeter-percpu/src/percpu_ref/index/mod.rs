//! Pointers by hash: found without a lock, changed under one.
//!
//! The table is open-addressed, so that a lookup is mostly one probe of one line; a chain of nodes
//! would take an allocation for each entry, and a walk. Nothing moves within a table: a removed
//! entry leaves its place behind, and a table with too few places left is replaced by a copy. A
//! reader therefore never misses an entry that stays, whatever changes around it.

use std::ptr::{self, NonNull};

use crate::rcuref::{Guard, RcuArc, RcuSlot};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Pointers by hash.
///
/// It neither follows nor owns the pointers. Law: an entry that [`find`](Index::find) returns was
/// put in by [`insert`](Index::insert), and had not been taken out when `guard` was made.
pub(super) struct Index<P> {
    /// None until the first entry: most groups have no children.
    table: RcuSlot<Table<P>>,
}

/// A power of two of places, at least a quarter of which was never used.
struct Table<P> {
    places: Box<[IndexPlace<P>]>,
    /// The number of places that have an object. Writer: the lock's holder, as for everything
    /// below.
    live: AtomicUsize,
    /// The number of places that ever had one.
    used: AtomicUsize,
}

struct IndexPlace<P> {
    /// 0 until the place is used. It changes when the place is reused.
    hash: AtomicUsize,
    /// Null before that, and again once the object was removed.
    object: AtomicPtr<P>,
}

/// The minimum number of places in a table.
const PLACES_MIN: usize = 4;
/// A table with at most this many places never shrinks: entries come and go.
const PLACES_KEPT: usize = 128;

impl<P: 'static> Index<P> {
    pub(super) fn new() -> Index<P> {
        Index { table: RcuSlot::empty() }
    }

    /// Returns the object with this hash that `is` accepts, if there is one.
    #[inline]
    pub(super) fn find(
        &self,
        hash: usize,
        guard: &Guard,
        is: impl Fn(NonNull<P>) -> bool,
    ) -> Option<NonNull<P>> {
        self.table.peek(guard)?.value().find(used(hash), is)
    }

    /// Returns whether no object was inserted since the index was made or everything was taken out.
    #[cfg(not(loom))]
    pub(super) fn is_unused(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns how many objects there are.
    pub(super) fn len(&self, guard: &Guard) -> usize {
        // Relaxed: it is only a number.
        self.table.peek(guard).map_or(0, |table| table.live.load(Ordering::Relaxed))
    }

    /// Inserts an object, and returns the one that it replaces. The lock is held.
    pub(super) fn insert(
        &self,
        hash: usize,
        object: NonNull<P>,
        guard: &Guard,
        is: impl Fn(NonNull<P>) -> bool,
    ) -> Option<NonNull<P>> {
        let hash = used(hash);
        if let Some(table) = self.table.peek(guard) {
            if let Some(place) = table.place(hash, &is) {
                return place.set(object.as_ptr());
            }
            if table.add(hash, object) {
                return None;
            }
        }
        let larger = Table::with_room(self.len(guard) + 1);
        self.fill(&larger, guard);
        assert!(larger.add(hash, object), "a new table has room");
        self.publish(larger, guard);
        None
    }

    /// Removes an object. The lock is held.
    pub(super) fn remove(
        &self,
        hash: usize,
        guard: &Guard,
        is: impl Fn(NonNull<P>) -> bool,
    ) -> Option<NonNull<P>> {
        let table = self.table.peek(guard)?;
        let removed = table.place(used(hash), &is)?.set(ptr::null_mut());
        let live = table.live(-1);
        if table.places.len() > PLACES_KEPT && live < table.places.len() / 8 {
            let smaller = Table::with_room(live);
            self.fill(&smaller, guard);
            self.publish(smaller, guard);
        }
        removed
    }

    /// Returns the objects, in no order. Without the lock, concurrent changes may be missed.
    #[cfg(not(loom))]
    pub(super) fn iter<'g>(&self, guard: &'g Guard) -> impl Iterator<Item = NonNull<P>> + 'g {
        let table = self.table.peek(guard).map(|table| table.value());
        table.into_iter().flat_map(|table| table.places.iter()).filter_map(IndexPlace::object)
    }

    /// Takes all objects out, in no order. The lock is held.
    #[cfg(not(loom))]
    pub(super) fn take(&self, guard: &Guard) -> Vec<NonNull<P>> {
        let Some(table) = self.table.take() else { return Vec::new() };
        let objects = table.places.iter().filter_map(IndexPlace::object).collect();
        RcuArc::release(table, guard);
        objects
    }

    /// Takes all objects out once no other thread can reach the index.
    #[cfg(not(loom))]
    pub(super) fn end(&mut self) -> impl Iterator<Item = NonNull<P>> + use<P> {
        let table = self.table.take();
        let objects =
            table.iter().flat_map(|table| table.places.iter().filter_map(IndexPlace::object));
        objects.collect::<Vec<_>>().into_iter()
    }

    /// Copies the objects to a table that no reader has yet.
    fn fill(&self, new: &Table<P>, guard: &Guard) {
        let table = self.table.peek(guard).map(|table| table.value());
        for place in table.into_iter().flat_map(|table| table.places.iter()) {
            if let Some(object) = place.object() {
                // Relaxed: the lock is held.
                assert!(new.add(place.hash.load(Ordering::Relaxed), object), "it has room for all");
            }
        }
    }

    /// Makes readers that start from now on use `new`. Readers of the old table keep it until they
    /// are done, as they would keep an entry that is removed at the same time.
    fn publish(&self, new: Table<P>, guard: &Guard) {
        if let Some(old) = self.table.replace(RcuArc::new(new)) {
            RcuArc::release(old, guard);
        }
    }
}

impl<P> Table<P> {
    /// Creates a table for `live` objects and at least as many more.
    fn with_room(live: usize) -> Table<P> {
        let places = (2 * live).next_power_of_two().max(PLACES_MIN);
        let zero = || AtomicUsize::new(0);
        let free = |_| IndexPlace { hash: zero(), object: AtomicPtr::new(ptr::null_mut()) };
        Table { places: (0..places).map(free).collect(), live: zero(), used: zero() }
    }

    /// Returns the places where an object with this hash may be, the most likely first.
    #[inline]
    fn path(&self, hash: usize) -> impl Iterator<Item = &IndexPlace<P>> {
        let mask = self.places.len() - 1;
        (0..self.places.len()).map(move |step| &self.places[hash.wrapping_add(step) & mask])
    }

    #[inline]
    fn find(&self, hash: usize, is: impl Fn(NonNull<P>) -> bool) -> Option<NonNull<P>> {
        for place in self.path(hash) {
            // Relaxed: a thread that may rely on an entry is ordered after its insertion, so it
            // sees no free place before the entry on its path. A thread that sees an object without
            // its hash, or a hash without its object, is not: its lookup counts as one before the
            // insertion.
            let found = place.hash.load(Ordering::Relaxed);
            if found == 0 {
                return None;
            }
            if found == hash
                && let Some(object) = place.object()
                && is(object)
            {
                return Some(object);
            }
        }
        None
    }

    /// Returns the place of an object. The lock is held.
    fn place(&self, hash: usize, is: impl Fn(NonNull<P>) -> bool) -> Option<&IndexPlace<P>> {
        // Relaxed: the lock is held.
        let hash_of = |place: &&IndexPlace<P>| place.hash.load(Ordering::Relaxed);
        let mut path = self.path(hash).take_while(|place| hash_of(place) != 0);
        path.find(|place| hash_of(place) == hash && place.object().is_some_and(&is))
    }

    /// Inserts a new object if there is room. The lock is held.
    fn add(&self, hash: usize, object: NonNull<P>) -> bool {
        let place = self.path(hash).find(|place| place.object().is_none());
        let Some(place) = place else { return false };
        // Relaxed: the lock is held.
        if place.hash.load(Ordering::Relaxed) == 0 {
            // Relaxed: the lock is held.
            let used = self.used.load(Ordering::Relaxed) + 1;
            // A path ends at a place that was never used. If few such places are left, paths are
            // long; with none, a search for a missing object would visit every place.
            if used > self.places.len() / 4 * 3 {
                return false;
            }
            // Relaxed: the lock is held.
            self.used.store(used, Ordering::Relaxed);
        }
        place.set(object.as_ptr());
        // Relaxed: see `find`.
        place.hash.store(hash, Ordering::Relaxed);
        self.live(1);
        true
    }

    /// Adds `change` to the number of objects, and returns the result. The lock is held.
    fn live(&self, change: isize) -> usize {
        // Relaxed, both: the lock is held.
        let live = self.live.load(Ordering::Relaxed).wrapping_add_signed(change);
        self.live.store(live, Ordering::Relaxed);
        live
    }
}

impl<P> IndexPlace<P> {
    #[inline]
    fn object(&self) -> Option<NonNull<P>> {
        // Acquire: pairs with the Release in `set`, so that an object is seen as it was put in.
        NonNull::new(self.object.load(Ordering::Acquire))
    }

    /// Exchanges the object. The lock is held.
    fn set(&self, object: *mut P) -> Option<NonNull<P>> {
        // Relaxed: the lock is held.
        let old = self.object.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `object`.
        self.object.store(object, Ordering::Release);
        NonNull::new(old)
    }
}

/// Returns the hash as it is stored in a used place: never 0.
#[inline]
fn used(hash: usize) -> usize {
    // The top bit: the low ones choose the place.
    hash | 1 << (usize::BITS - 1)
}

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
