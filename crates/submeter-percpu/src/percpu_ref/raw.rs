//! Everything unsafe of the reference counts: a value under a lock, and objects that free themselves.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
#[cfg(debug_assertions)]
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicPtr, Ordering};

use super::core::Core;
use super::count::Put;
use super::lock::ForkLock;
use super::rows;
use super::sites::Site;
use super::switch::After;

/// A value that only one thread at a time can use. After a fork, what a vanished thread had in its hands is
/// given up for a fresh one.
pub(super) struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time have the value, which may be sent.
unsafe impl<T: Send> Sync for ForkMutex<T> {}

impl<T: Default> Default for ForkMutex<T> {
    fn default() -> ForkMutex<T> {
        ForkMutex { lock: ForkLock::new(), value: UnsafeCell::default() }
    }
}

impl<T: Default> ForkMutex<T> {
    /// Calls `with`, which must not call back here, nor anybody else's code.
    pub(super) fn with<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        let held = self.lock.lock();
        if held.stolen {
            // SAFETY: as below. Written over without a drop: the value may be half-changed.
            unsafe { self.value.get().write(T::default()) };
        }
        // SAFETY: 1. `held` excludes every other thread until the end of this function. 2. This thread
        // has no other reference: `with` does not come back here.
        with(unsafe { &mut *self.value.get() })
    }
}

impl<T> std::fmt::Debug for ForkMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForkMutex")
    }
}

/// A place in the source, set once, by whoever comes first; never blocks.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(super) struct Place(AtomicPtr<Location<'static>>);

#[cfg(debug_assertions)]
impl Place {
    pub(super) fn get(&self) -> Option<&'static Location<'static>> {
        // Relaxed: a location is static data of the program.
        let place = self.0.load(Ordering::Relaxed);
        // SAFETY: null, or made from a static reference by `claim`.
        unsafe { place.as_ref() }
    }

    /// Returns whether the place is `location`, now or already.
    pub(super) fn claim(&self, location: &'static Location<'static>) -> bool {
        let new = std::ptr::from_ref(location).cast_mut();
        // Relaxed: as in `get`.
        match self.0.compare_exchange(
            std::ptr::null_mut(),
            new,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => true,
            Err(_) => self.get() == Some(location),
        }
    }
}

/// An object with its reference count.
///
/// The memory is an `Arc`'s. One of that `Arc`'s counts belongs to all references together, and goes
/// after the release; whoever asks about the object later (its owner) has another.
#[repr(C)]
pub(super) struct Shared<T> {
    core: Core,
    /// Dropped by the release, never by the `Arc`.
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the value is shared as by an `Arc`: references to it go to other threads (`Sync`), and any
// thread may drop it (`Send`). The rest is made for sharing.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

/// Holds one reference to an object; puts it when dropped.
pub(super) struct Reference<T> {
    shared: NonNull<Shared<T>>,
    site: Site,
    /// Dropping one may drop the value.
    owns: PhantomData<T>,
}

// SAFETY: as for `Shared`.
unsafe impl<T: Send + Sync> Send for Reference<T> {}
// SAFETY: as for `Shared`.
unsafe impl<T: Send + Sync> Sync for Reference<T> {}

impl<T> Shared<T> {
    /// Makes an object from a count that stands at its initial reference, which is `kill`'s to put.
    pub(super) fn new(core: Core, value: T) -> Arc<Shared<T>> {
        let shared = Arc::new(Shared { core, value: UnsafeCell::new(ManuallyDrop::new(value)) });
        // For all references together; `release` takes it back.
        let _ = Arc::into_raw(Arc::clone(&shared));
        shared
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Takes a reference, unless none is left, or, with `live`, it was killed.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn try_get(self: &Arc<Self>, live: bool) -> Option<Reference<T>> {
        let shared = NonNull::new(Arc::as_ptr(self).cast_mut()).expect("an Arc is never null");
        let took = self.core.switch.try_get_one(live);
        // Not `then`: in a closure, the caller's place in the source is the closure's.
        if took {
            Some(Reference { shared, site: self.core.sites.took(1), owns: PhantomData })
        } else {
            None
        }
    }

    /// Acts on what a change of mode of this object's own count brought to light.
    pub(super) fn act(self: &Arc<Self>, after: After) {
        if after.last {
            // SAFETY: the count, of which this is the answer, says "last" once: the initial reference is
            // put by the one kill that is not refused, all others are `Reference`s.
            unsafe { release(Arc::as_ptr(self)) };
        }
    }

    /// Puts the initial reference that a kill has kept.
    pub(super) fn put_initial(self: &Arc<Self>) {
        let mut after = After::default();
        after.note(self.core.switch.put_one());
        self.act(after);
    }
}

impl<T> Reference<T> {
    #[inline(always)]
    pub(super) fn core(&self) -> &Core {
        // SAFETY: the reference keeps the memory as long as `self`.
        unsafe { &(*self.shared.as_ptr()).core }
    }

    #[inline(always)]
    pub(super) fn value(&self) -> &T {
        // SAFETY: 1. The reference keeps memory and value as long as `self`. 2. Only the release makes
        // a mutable reference, after the last reference is gone.
        unsafe { &*(*self.shared.as_ptr()).value.get() }
    }

    /// Takes another one; `None` if it was killed.
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
        // Not methods of `Core`: with the reference put, another thread may free the memory while a
        // function still has it as an argument. What is borrowed here across a step that may put is
        // either copied or wholly made of atomics, to which the language gives that licence.
        let shared = self.shared.as_ptr();
        // SAFETY: the reference keeps the memory until the sequence commits; nothing is touched after:
        // the commit is the section's last instruction.
        let slots = unsafe { &raw const (*shared).core.switch.slots };
        // SAFETY: as above.
        let (word, gate) = unsafe { ((*slots).word, &(*slots).gate) };
        if !word.add_one::<-1>(gate) {
            // SAFETY: the sequence did not commit: the reference is still ours, and we are done with it.
            unsafe { put_slow(shared) };
        }
    }
}

/// Puts a reference where the first sequence did not.
///
/// # Safety
/// The caller has a reference, which this takes.
#[inline(never)]
unsafe fn put_slow<T>(shared: *const Shared<T>) {
    // SAFETY: as in `drop`: every step below either leaves the reference where it is or is the last to touch
    // the object.
    let switch = unsafe { &(*shared).core.switch };
    if let Some(row) = switch.slots.row_by_cpu()
        && rows::add(row, -1)
    {
        return;
    }
    // SAFETY: a dead row discards what is added: the reference is still the caller's.
    unsafe { put_slower(shared) };
}

/// As [`put_slow`], after the row by CPU did not take it either.
///
/// # Safety
/// As [`put_slow`].
#[cold]
#[inline(never)]
unsafe fn put_slower<T>(shared: *const Shared<T>) {
    // SAFETY: as in `put_slow`.
    let switch = unsafe { &(*shared).core.switch };
    let done = match switch.slots.row_here() {
        Some(row) => rows::add(row, -1),
        None => switch.slots.word.add_again(&switch.slots.gate, -1),
    };
    if done {
        return;
    }
    match switch.count.put(1) {
        Put::Held => {}
        // SAFETY: the last reference was put just now.
        Put::Last => unsafe { release(shared) },
        Put::Below => unreachable!("references are handles: none is put twice"),
    }
}

/// Drops the value, tells whoever waits for it, gives up the memory.
///
/// # Safety
/// Every reference is gone, and the caller found that out: one caller for each object.
#[cold]
unsafe fn release<T>(shared: *const Shared<T>) {
    // SAFETY: the memory was kept for all references together by the count that `Shared::new`
    // forgot; it is taken back here, once.
    let shared = unsafe { Arc::from_raw(shared) };
    shared.core.release(|| {
        // SAFETY: nobody has a reference, nor ever will, upheld by the caller.
        unsafe { ManuallyDrop::drop(&mut *shared.value.get()) };
    });
}
