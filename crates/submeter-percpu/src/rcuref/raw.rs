//! The memory behind the pointers: every dereference, and every argument for it.
//!
//! Three facts carry all of it, and each SAFETY comment names those it uses:
//!
//! 1. **Counted.** Each `Owned`, each filled `Cell`, holds one reference of its object's count.
//!    Upheld by this file: an `Owned` is made only from a successful get or from another holder's
//!    reference, and gives its reference up exactly once, in `Drop` or by becoming a cell's.
//! 2. **Freed last.** Memory is freed only by what `put_slow` defers, which runs after a grace
//!    period that starts once the count was marked dead. Upheld by `put`, which says so to one
//!    caller only (the count's proof), and by `Guard::defer`.
//! 3. **Unlinked first.** A cell gives its reference up only after its pointer was replaced, so
//!    that a thread that reads the pointer under a guard does so before the grace period begins.
//!    Upheld by `Cell::swap` and `Drop`.

use std::any::type_name;
use std::marker::PhantomData;
use std::mem;
use std::ptr::{self, NonNull};

use super::count::{Count, Notice};
use super::guard::{Guard, pin};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::model_const_fn;

struct Inner<T> {
    count: Count,
    value: T,
}

impl<T> Inner<T> {
    /// Names the object for reports. A closure, so that the hot path carries no arguments for it.
    #[inline]
    fn notify(count: &Count) -> impl Fn(Notice) + '_ {
        move |notice| notice.report(type_name::<T>(), ptr::from_ref(count).addr())
    }
}

/// Returns a guard that guards nothing, where something else keeps objects from being retired.
///
/// It enters no section, and hence runs no drop of any value, as [`pin`] may: for use under locks.
///
/// # Safety
/// 1. Until it is last used, what is reached with it is not retired, by any thread. 2. Nothing is
///    deferred or released with it.
#[cfg(not(any(loom, all(miri, not(submeter_real_epoch)))))]
pub(crate) unsafe fn unguarded<'a>() -> &'a Guard {
    // SAFETY: 1 and 2 as the caller promises.
    let guard: &'static crossbeam_epoch::Guard = unsafe { crossbeam_epoch::unprotected() };
    // SAFETY: 1. `Guard` is transparent over this type. 2. It is never moved or dropped.
    unsafe { &*ptr::from_ref(guard).cast::<Guard>() }
}

/// As the other: the model's guards free nothing that this one could hold off.
///
/// # Safety
/// As the other.
#[cfg(all(miri, not(submeter_real_epoch)))]
pub(crate) unsafe fn unguarded<'a>() -> &'a Guard {
    struct Uncounted(Guard);
    // SAFETY: 1. By the caller's second promise no thread touches what it would defer.
    unsafe impl Sync for Uncounted {}
    static UNCOUNTED: Uncounted = Uncounted(Guard(super::guard_model::Guard::UNCOUNTED));
    &UNCOUNTED.0
}

/// One reference. Its drop puts it.
pub(super) struct Owned<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: 1. An `Owned` is a `&T` whose last holder sends the `T` to the thread that collects, so
// that moving one needs what moving a `&T` and a `T` need. 2. The count is atomic.
unsafe impl<T: Send + Sync> Send for Owned<T> {}
// SAFETY: 1 and 2 as for `Send`: a shared `Owned` can be cloned, and the clone moved.
unsafe impl<T: Send + Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Allocates an object with one reference.
    ///
    /// `Send + 'static`, here and in no other place: the value is dropped later and on any
    /// thread. `Owned` is covariant, so that its `T` may shrink afterwards; the value does not.
    pub(super) fn new(value: T) -> Owned<T>
    where
        T: Send + 'static,
    {
        let inner = Box::new(Inner { count: Count::new(1), value });
        Owned { inner: NonNull::from(Box::leak(inner)), owns: PhantomData }
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: 1 (counted): this reference keeps the count from being marked dead, and by 2
        // (freed last) the memory with it. The object is never borrowed mutably before that.
        unsafe { self.inner.as_ref() }
    }

    #[inline]
    pub(super) fn value(&self) -> &T {
        &self.inner().value
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *const T {
        &raw const self.inner().value
    }

    #[inline]
    pub(super) fn references(&self) -> u32 {
        self.inner().count.read()
    }

    #[inline]
    pub(super) fn duplicate(&self) -> Owned<T> {
        let count = &self.inner().count;
        let got = count.get(Inner::<T>::notify(count));
        // A get fails on a dead count only, and this reference keeps it alive. Unlike `Arc`, no
        // abort is needed against overflow: the count pins itself.
        debug_assert!(got, "a held object was dead");
        Owned { inner: self.inner, owns: PhantomData }
    }

    /// Gives the reference up.
    #[inline]
    pub(super) fn release(self, guard: &Guard) {
        let inner = mem::ManuallyDrop::new(self).inner;
        // SAFETY: 1 (counted): the reference of `self`, whose drop does not run.
        unsafe { put(inner, guard) };
    }

    #[inline]
    pub(super) fn borrow<'g>(&self, _guard: &'g Guard) -> Borrowed<'g, T> {
        Borrowed { inner: self.inner, keeps: PhantomData }
    }
}

impl<T> Drop for Owned<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1 (counted): until the exchange that puts it, the reference of `self` keeps the
        // object. 2. Nothing is touched after that, and a count is wholly atomic.
        let count = unsafe { &(*self.inner.as_ptr()).count };
        // Without a guard, which costs more than the put.
        if !count.put_one_of_many() {
            // SAFETY: 1 (counted): the reference of `self`, which ends: it was not put above.
            unsafe { put_pinned(self.inner) };
        }
    }
}

/// Puts one reference; the last one has the object freed.
///
/// # Safety
/// The caller has a reference to a live object, which this takes.
#[inline]
unsafe fn put<T>(inner: NonNull<Inner<T>>, guard: &Guard) {
    // SAFETY: 1 (counted): until the put's decrement the caller's reference keeps the object. After
    // it, 2 (freed last): the thread that marks the count dead defers the freeing past `guard`,
    // which exists already.
    let count = unsafe { &(*inner.as_ptr()).count };
    if count.decrement() {
        // SAFETY: 1. The decrement above went below zero, under the same guard.
        unsafe { put_slow(inner, guard) };
    }
}

/// Puts a reference under a guard of its own. Out of line, so that callers hold no code for guards,
/// and save no registers where they need none.
///
/// # Safety
/// As for `put`.
#[cold]
#[inline(never)]
unsafe fn put_pinned<T>(inner: NonNull<Inner<T>>) {
    // SAFETY: 1. As the caller promises.
    unsafe { put(inner, &pin()) };
}

/// Does the rest of a put whose decrement went below zero. Out of line in one piece, so that the
/// hot path saves no registers for it.
///
/// # Safety
/// The caller's decrement went below zero, while `guard` existed.
#[cold]
#[inline(never)]
unsafe fn put_slow<T>(inner: NonNull<Inner<T>>, guard: &Guard) {
    // SAFETY: 2 (freed last), as in `put` for the time after the decrement.
    let count = unsafe { &(*inner.as_ptr()).count };
    if !count.put_slow(Inner::<T>::notify(count)) {
        return;
    }
    let garbage = Garbage { object: inner.as_ptr().cast(), free: free::<T> };
    guard.defer(move || garbage.free());
}

/// An object after its last reference, its type erased: a deferred call must be `'static`, and a
/// shrunken `T` is not, although its value is (see `Owned::new`).
struct Garbage {
    object: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: 1. `Owned::new` took a `T: Send`. 2. This is the only way to the object that is left.
unsafe impl Send for Garbage {}

impl Garbage {
    /// Takes the whole: a closure that used the fields would capture the bare pointer.
    fn free(self) {
        // SAFETY: 1. `free` belongs to the object's type, since only `put_slow` makes a `Garbage`.
        // 2. by 2 (freed last) this runs once and after the grace period.
        unsafe { (self.free)(self.object) }
    }
}

/// Drops and deallocates an `Inner<T>`.
///
/// # Safety
/// 1. `object` came from `Owned::<T>::new`. 2. It is neither used nor freed after.
unsafe fn free<T>(object: *mut ()) {
    // SAFETY: 1 and 2 as the caller promises; `Owned::new` leaked a `Box` of this type.
    drop(unsafe { Box::from_raw(object.cast::<Inner<T>>()) });
}

/// A pointer to an object without a reference, while a guard is held. Not `Send`, as the guard.
pub(super) struct Borrowed<'g, T> {
    inner: NonNull<Inner<T>>,
    keeps: PhantomData<(&'g Guard, &'g T)>,
}

impl<T> Clone for Borrowed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Borrowed<'_, T> {}

impl<'g, T> Borrowed<'g, T> {
    #[inline]
    pub(super) fn value(self) -> &'g T {
        // SAFETY: 1. Made under a guard that lives for `'g`, from an `Owned` or from a cell's
        // pointer: the object was alive then, so by 2 (freed last) and 3 (unlinked first) it is
        // still in memory; a value is not touched mutably before it is freed.
        unsafe { &(*self.inner.as_ptr()).value }
    }

    #[inline]
    pub(super) fn try_get(self) -> Option<Owned<T>> {
        // SAFETY: 1 as in `value`.
        let count = unsafe { &(*self.inner.as_ptr()).count };
        // Ordered, although most callers do not look twice: see `RcuBorrow::try_get`.
        // `then`, not `then_some`: an `Owned` that was never got must not exist to be dropped.
        count
            .get_ordered(Inner::<T>::notify(count))
            .then(|| Owned { inner: self.inner, owns: PhantomData })
    }
}

/// One reference, or none, that threads exchange.
///
/// Bits: the pointer, null for none. Writers: any thread, by `swap`.
pub(super) struct Cell<T> {
    object: AtomicPtr<Inner<T>>,
    owns: PhantomData<Owned<T>>,
}

impl<T> Cell<T> {
    model_const_fn! {
        pub(super) fn empty() -> Cell<T> {
            Cell { object: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
        }
    }

    pub(super) fn new(owned: Owned<T>) -> Cell<T> {
        Cell { object: AtomicPtr::new(into_pointer(Some(owned))), owns: PhantomData }
    }

    #[inline]
    pub(super) fn load(&self, guard: &Guard) -> Option<Owned<T>> {
        loop {
            let seen = self.peek(guard)?;
            // On failure the object was unlinked and released since: the next look sees that, as
            // the get synchronised with the puts, and they came after the unlinking.
            let Some(owned) = seen.try_get() else { continue };
            // SeqCst: pairs with the SeqCst get before it: see `Count::get_ordered`.
            if self.object.load(Ordering::SeqCst) == owned.inner.as_ptr() {
                return Some(owned);
            }
            owned.release(guard);
        }
    }

    #[inline]
    pub(super) fn peek<'g>(&self, _guard: &'g Guard) -> Option<Borrowed<'g, T>> {
        // Acquire: pairs with the SeqCst in `swap`, so that the object is seen as published.
        let object = self.object.load(Ordering::Acquire);
        NonNull::new(object).map(|inner| Borrowed { inner, keeps: PhantomData })
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the SeqCst in `swap`, so that everything before the slot was emptied
        // is seen.
        self.object.load(Ordering::Acquire).is_null()
    }

    #[inline]
    pub(super) fn swap(&self, new: Option<Owned<T>>) -> Option<Owned<T>> {
        // SeqCst: publishes the new object to `peek`, sees the old one as published, and comes
        // before a later SeqCst read of the old one's count: see `Count::get_ordered`.
        let old = self.object.swap(into_pointer(new), Ordering::SeqCst);
        NonNull::new(old).map(|inner| Owned { inner, owns: PhantomData })
    }
}

impl<T> Drop for Cell<T> {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

/// Turns a holder into its pointer, which now stands for its reference.
fn into_pointer<T>(owned: Option<Owned<T>>) -> *mut Inner<T> {
    owned.map_or(ptr::null_mut(), |owned| mem::ManuallyDrop::new(owned).inner.as_ptr())
}
