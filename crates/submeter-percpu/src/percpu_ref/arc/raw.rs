//! Objects that free themselves with their last reference.
//!
//! Everything here rests on three facts, and each SAFETY comment names those it uses:
//!
//! 1. **Counted.** Each [`Reference`] is one reference of its object's count, and so is the right
//!    to kill, until the kill. Upheld by this file: no other file reaches the count inside an
//!    object (`view` changes nothing), a `Reference` is made only by a successful get, and puts its
//!    reference once, in its drop.
//! 2. **Released last.** The count answers "last" once, to the put or change of mode after which no
//!    reference is left and none can be taken. Upheld by `switch`: zero is final except for a new
//!    life, which nothing here starts.
//! 3. **Freed last.** The memory is an `Arc`'s. One of that `Arc`'s counts belongs to all
//!    references together: `Shared::new` forgets it, and `release` takes it back.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::backend::gated::{Adder, GatedWord};
use crate::percpu_ref::core::{Core, View};
use crate::percpu_ref::count::Put;
use crate::percpu_ref::holders::Site;
use crate::percpu_ref::kill::{Counted, kill_and_confirm, kill_many};
use crate::percpu_ref::raw::AreaSlots;
use crate::percpu_ref::rows;
use crate::percpu_ref::switch::{After, Switch};

/// An object and its reference count.
#[repr(C)]
pub(in crate::percpu_ref) struct Shared<T> {
    core: Core,
    /// Dropped by the release, never by the `Arc`.
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: 1. The value is shared as it is by an `Arc`: references to it go to other threads
// (`Sync`), and any thread may drop it (`Send`). 2. The core is `Sync` by itself.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: 1 and 2 as for `Sync`.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

/// One reference to an object. Its drop puts it.
pub(in crate::percpu_ref) struct Reference<T> {
    shared: NonNull<Shared<T>>,
    site: Site,
    /// Dropping one may drop the value.
    owns: PhantomData<T>,
}

// SAFETY: 1 and 2 as for `Shared`.
unsafe impl<T: Send + Sync> Send for Reference<T> {}
// SAFETY: 1 and 2 as for `Shared`.
unsafe impl<T: Send + Sync> Sync for Reference<T> {}

impl<T> Shared<T> {
    /// Makes an object from a count that has only its initial reference, which the kill will put.
    pub(super) fn new(core: Core, value: T) -> Arc<Shared<T>> {
        let shared = Arc::new(Shared { core, value: UnsafeCell::new(ManuallyDrop::new(value)) });
        // This count is for all references together: see 3 (freed last).
        let _ = Arc::into_raw(Arc::clone(&shared));
        shared
    }

    pub(super) fn name(&self) -> &str {
        self.core.name()
    }

    pub(super) fn view(&self) -> View<'_> {
        self.core.view()
    }

    /// Takes a reference unless none is left or, with `live`, the object was killed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn try_get(self: &Arc<Self>, live: bool) -> Option<Reference<T>> {
        // SAFETY: 1. The `Arc` keeps the memory.
        unsafe { Reference::try_of(Self::pointer(self), live) }
    }

    pub(in crate::percpu_ref) fn pointer(self: &Arc<Self>) -> NonNull<Shared<T>> {
        NonNull::new(Arc::as_ptr(self).cast_mut()).expect("an Arc is never null")
    }

    /// Borrows the count of an object whose value may be dropped in the meantime.
    ///
    /// # Safety
    /// The memory lives for `'a`.
    #[inline(always)]
    pub(in crate::percpu_ref) unsafe fn core_at<'a>(shared: NonNull<Shared<T>>) -> &'a Core {
        // SAFETY: 1. The memory lives: the caller's promise. 2. The value, to which a release may
        // make a mutable reference, is another field.
        unsafe { &(*shared.as_ptr()).core }
    }

    /// Kills all of them behind one barrier. Returns how many were alive.
    pub(super) fn kill_many<'a>(all: impl IntoIterator<Item = &'a Arc<Shared<T>>>) -> usize
    where
        T: 'a,
    {
        kill_many(all.into_iter().map(Killing))
    }

    pub(super) fn kill_and_confirm(self: &Arc<Self>, confirm: impl FnOnce()) -> bool {
        kill_and_confirm(Killing(self), confirm)
    }

    /// Finishes a kill whose thread a fork left behind.
    pub(super) fn help(self: &Arc<Self>) {
        Killing(self).act(self.core.help());
    }
}

/// An object as seen by a kill. Private to this file, since it exposes the count.
struct Killing<'a, T>(&'a Arc<Shared<T>>);

impl<T> Counted for Killing<'_, T> {
    type Slots = AreaSlots;

    fn switch(&self) -> &Switch<AreaSlots> {
        &self.0.core.switch
    }

    fn second_kill(&self) {
        self.0.core.second_kill();
    }

    fn act(&self, after: After) {
        if after.last {
            // SAFETY: 2 (released last): `after` is an answer of this object's count, since only
            // `kill` and `help` above call this.
            unsafe { release(Arc::as_ptr(self.0)) };
        }
    }
}

impl<T> Reference<T> {
    /// Takes a reference unless none is left or, with `live`, the object was killed.
    ///
    /// # Safety
    /// The memory of the object lives until this returns.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(in crate::percpu_ref) unsafe fn try_of(
        shared: NonNull<Shared<T>>,
        live: bool,
    ) -> Option<Reference<T>> {
        // SAFETY: 1. The memory lives: the caller's promise, and then, if there is a reference, 1
        // (counted) and 3 (freed last).
        let core = unsafe { Shared::core_at(shared) };
        let took = core.switch.try_get_one(live);
        // Not `then`: in a closure, the caller's location would be the closure's.
        if took {
            Some(Reference { shared, site: core.sites.took(1), owns: PhantomData })
        } else {
            None
        }
    }

    #[inline(always)]
    fn core(&self) -> &Core {
        // SAFETY: 1 (counted) and 3 (freed last): this reference keeps the memory as long as
        // `self`.
        unsafe { Shared::core_at(self.shared) }
    }

    pub(super) fn name(&self) -> &str {
        self.core().name()
    }

    pub(super) fn ptr_eq(&self, other: &Reference<T>) -> bool {
        self.shared == other.shared
    }

    #[inline(always)]
    pub(super) fn value(&self) -> &T {
        // SAFETY: 1 (counted) and 2 (released last): this reference keeps memory and value as long
        // as `self`, and only the release makes a mutable reference to the value.
        unsafe { &*(*self.shared.as_ptr()).value.get() }
    }

    /// Takes another reference; `None` if the object was killed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn try_clone_live(&self) -> Option<Reference<T>> {
        let core = self.core();
        let took = core.switch.try_get_one(true);
        if took { Some(Reference { site: core.sites.took(1), ..*self }) } else { None }
    }
}

impl<T> Clone for Reference<T> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn clone(&self) -> Reference<T> {
        let core = self.core();
        core.get(1);
        Reference { site: core.sites.took(1), ..*self }
    }
}

impl<T> Drop for Reference<T> {
    #[inline]
    fn drop(&mut self) {
        self.core().sites.gave(self.site);
        // Not methods of `Core`: once the reference is put, another thread may free the memory
        // while a function still has it as an argument. Values that are borrowed below across a
        // step that may put are either copied or made of atomics only, for which the language
        // allows this.
        let shared = self.shared.as_ptr();
        // SAFETY: 1 (counted): the reference keeps the memory until the sequence commits. 2. The
        // result is not used after: the commit is the sequence's last instruction.
        let done = unsafe { adder(shared).add_one::<-1>() };
        if !done {
            // SAFETY: 1 (counted): the sequence did not commit, so the reference is still ours, and
            // this is its last use.
            unsafe { put_slow(shared) };
        }
    }
}

/// Returns the adder that puts by sequence.
///
/// # Safety
/// The same as for [`GatedWord::adder_at`], for the word of the object.
#[inline(always)]
unsafe fn adder<'a, T>(shared: *const Shared<T>) -> Adder<'a> {
    // SAFETY: 1. The object lives until the add commits: the caller's promise, passed on. 2. The
    // field of a live object is in bounds.
    unsafe { GatedWord::adder_at(&raw const (*shared).core.switch.slots.word) }
}

/// Puts a reference after the first sequence did not.
///
/// # Safety
/// The caller has a reference, which this takes.
#[inline(never)]
unsafe fn put_slow<T>(shared: *const Shared<T>) {
    // SAFETY: 1 (counted): until the add, the caller's reference keeps the memory; after it,
    // nothing is touched.
    let slots = unsafe { &(*shared).core.switch.slots };
    if let Some(row) = slots.row_by_hint()
        && rows::add(row, -1)
    {
        return;
    }
    // SAFETY: 1 (counted): a dead row discards what is added, so the reference is still the
    // caller's.
    unsafe { put_slower(shared) };
}

/// Does the same as [`put_slow`] after the CPU's row did not take the put either.
///
/// # Safety
/// The same as for [`put_slow`].
#[cold]
#[inline(never)]
unsafe fn put_slower<T>(shared: *const Shared<T>) {
    // SAFETY: 1 (counted), as in `put_slow`.
    let done = match unsafe { (*shared).core.switch.slots.row_here() } {
        Some(row) => rows::add(row, -1),
        // SAFETY: 1 and 2 as in `drop`.
        None => unsafe { adder(shared).add_again(-1) },
    };
    if done {
        return;
    }
    // Not `count_since_opening`: there is only one life, which began before any other thread had a
    // reference. SAFETY: 1 (counted): nothing was put yet. A count consists of atomics only.
    match unsafe { (*shared).core.switch.count.put(1) } {
        Put::Held => {}
        // SAFETY: 2 (released last): the count has just answered so.
        Put::Last => unsafe { release(shared) },
        Put::Below => unreachable!("references are handles: none is put twice"),
    }
}

/// Drops the value, wakes the waiters, and gives up the memory.
///
/// # Safety
/// The count of the object has answered "last" to the caller, see 2 (released last).
#[cold]
unsafe fn release<T>(shared: *const Shared<T>) {
    // SAFETY: 3 (freed last): it is taken back once, since the count answers "last" once.
    let shared = unsafe { Arc::from_raw(shared) };
    shared.core.release(|| {
        // SAFETY: 2 (released last): no reference is left, and none can be taken.
        unsafe { ManuallyDrop::drop(&mut *shared.value.get()) };
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::percpu_ref::PercpuArc;

    /// Waiters for a value finish a kill whose thread a fork left behind at its barrier.
    #[test]
    fn waiters_for_a_value_finish_its_kill() {
        let (owner, pointer) = PercpuArc::new(1).expect("room");
        assert!(Killing(&owner.shared).switch().begin_kill(false).is_some());
        drop(pointer);
        assert!(!owner.is_released());
        owner.released_blocking(Duration::ZERO).expect("finished");
    }
}
