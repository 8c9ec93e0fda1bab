//! The memory behind the pointers: every dereference, and the argument for it.
//!
//! Everything here rests on three facts, and each SAFETY comment names those it uses:
//!
//! 1. **Counted.** Each `Owned` and each filled `Cell` holds one reference of its object's count.
//!    Upheld by this file: an `Owned` is made only from a successful get or from another holder's
//!    reference, and gives its reference up exactly once, in `Drop` or by becoming a cell's.
//! 2. **Freed last.** Memory is freed only by the function that `put_slow` defers, which runs after
//!    a grace period that starts once the count was marked dead. Upheld by `put`, which returns
//!    true to one caller only (the count's proof), and by `Guard::defer`.
//! 3. **Unlinked first.** A cell gives up its reference only after its pointer was replaced, so a
//!    thread that reads the pointer under a guard does so before the grace period begins. Upheld by
//!    `Cell::swap` and `Drop`.

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
    /// Returns a closure that reports misuse of the object. A closure, so that the hot path carries
    /// no arguments for it.
    #[inline]
    fn notify(count: &Count) -> impl Fn(Notice) + '_ {
        move |notice| notice.report(type_name::<T>(), ptr::from_ref(count).addr())
    }
}

/// Returns a guard that guards nothing, for use where something else keeps objects from being
/// retired.
///
/// It enters no section, and hence, unlike [`pin`], never runs the drop of a value: it is for use
/// under locks.
///
/// # Safety
/// 1. Until it is last used, no thread retires anything reached with it. 2. Nothing is deferred or
///    released with it.
#[cfg(not(any(loom, all(miri, not(submeter_real_epoch)))))]
pub(crate) unsafe fn unguarded<'a>() -> &'a Guard {
    // SAFETY: 1 and 2 as the caller promises.
    let guard: &'static crossbeam_epoch::Guard = unsafe { crossbeam_epoch::unprotected() };
    // SAFETY: 1. `Guard` is transparent over this type. 2. It is never moved or dropped.
    unsafe { &*ptr::from_ref(guard).cast::<Guard>() }
}

/// Does the same under Miri: the model's guards free nothing that this one could delay.
///
/// # Safety
/// The same as for the other.
#[cfg(all(miri, not(submeter_real_epoch)))]
pub(crate) unsafe fn unguarded<'a>() -> &'a Guard {
    struct Uncounted(Guard);
    // SAFETY: 1. By the caller's second promise no thread accesses its deferred functions.
    unsafe impl Sync for Uncounted {}
    static UNCOUNTED: Uncounted = Uncounted(Guard(super::guard_model::Guard::UNCOUNTED));
    &UNCOUNTED.0
}

/// One reference, which its drop puts.
pub(super) struct Owned<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: 1. An `Owned` is a `&T` whose last holder sends the `T` to the thread that collects, so
// moving one needs what moving a `&T` and moving a `T` need. 2. The count is atomic.
unsafe impl<T: Send + Sync> Send for Owned<T> {}
// SAFETY: 1 and 2 as for `Send`: a shared `Owned` can be cloned, and the clone moved.
unsafe impl<T: Send + Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Allocates an object with one reference.
    ///
    /// `Send + 'static`, here and nowhere else: the value is dropped later, on any thread. `Owned`
    /// is covariant, so its `T` may shrink afterwards; the value does not.
    pub(super) fn new(value: T) -> Owned<T>
    where
        T: Send + 'static,
    {
        let inner = Box::new(Inner { count: Count::new(1), value });
        Owned { inner: NonNull::from(Box::leak(inner)), owns: PhantomData }
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: 1 (counted): this reference keeps the count from being marked dead, which by 2
        // (freed last) keeps the memory. The object is never borrowed mutably before that.
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
        // A get fails only on a dead count, and this reference keeps it alive. Unlike in `Arc`, no
        // abort is needed against overflow: the count pins itself.
        debug_assert!(got, "a held object was dead");
        Owned { inner: self.inner, owns: PhantomData }
    }

    /// Gives up the reference.
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
        // object. 2. Nothing is accessed after that, and a count consists of atomics only.
        let count = unsafe { &(*self.inner.as_ptr()).count };
        // Without a guard, which would cost more than the put.
        if !count.put_one_of_many() {
            // SAFETY: 1 (counted): the reference of `self`, which ends here: it was not put above.
            unsafe { put_pinned(self.inner) };
        }
    }
}

/// Puts one reference; the last put makes the object be freed.
///
/// # Safety
/// The caller has a reference to a live object, which this takes.
#[inline]
unsafe fn put<T>(inner: NonNull<Inner<T>>, guard: &Guard) {
    // SAFETY: 1 (counted): until the put's decrement the caller's reference keeps the object. After
    // it, 2 (freed last): the thread that marks the count dead defers the freeing past `guard`,
    // which already exists.
    let count = unsafe { &(*inner.as_ptr()).count };
    if count.decrement() {
        // SAFETY: 1. The decrement above went below zero, under the same guard.
        unsafe { put_slow(inner, guard) };
    }
}

/// Puts a reference under a new guard. Out of line, so that callers contain no code for guards, and
/// save no registers where they need none.
///
/// # Safety
/// The same as for `put`.
#[cold]
#[inline(never)]
unsafe fn put_pinned<T>(inner: NonNull<Inner<T>>) {
    // SAFETY: 1. As the caller promises.
    unsafe { put(inner, &pin()) };
}

/// Completes a put whose decrement went below zero. Out of line in one piece, so that the hot path
/// saves no registers for it.
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

/// An object after its last reference, with its type erased: a deferred call must be `'static`, and
/// a shrunken `T` is not, although its value is (see `Owned::new`).
struct Garbage {
    object: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: 1. `Owned::new` took a `T: Send`. 2. This is the only remaining way to the object.
unsafe impl Send for Garbage {}

impl Garbage {
    /// Frees the object. Takes `self` whole: a closure that used the fields would capture the bare
    /// pointer.
    fn free(self) {
        // SAFETY: 1. `free` belongs to the object's type, since only `put_slow` makes a `Garbage`.
        // 2. by 2 (freed last) this runs once and after the grace period.
        unsafe { (self.free)(self.object) }
    }
}

/// Drops and deallocates an `Inner<T>`.
///
/// # Safety
/// 1. `object` came from `Owned::<T>::new`. 2. It is neither used nor freed afterwards.
unsafe fn free<T>(object: *mut ()) {
    // SAFETY: 1 and 2 as the caller promises; `Owned::new` leaked a `Box` of this type.
    drop(unsafe { Box::from_raw(object.cast::<Inner<T>>()) });
}

/// A pointer to an object without a reference, while a guard is held. Like the guard, it is not
/// `Send`.
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
        // Ordered, although most callers do not check the pointer again: see `RcuBorrow::try_get`.
        // `then`, not `then_some`: an `Owned` without a reference must never exist, since it would
        // be dropped.
        count
            .get_ordered(Inner::<T>::notify(count))
            .then(|| Owned { inner: self.inner, owns: PhantomData })
    }
}

/// One reference, or none, which threads exchange.
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
            // On failure the object has been unlinked and released: the next load sees that, since
            // the get synchronised with the puts, and they came after the unlinking.
            let Some(owned) = seen.try_get() else { continue };
            // SeqCst: ordered after the SeqCst get before it: see `Count::get_ordered`.
            if self.object.load(Ordering::SeqCst) == owned.inner.as_ptr() {
                return Some(owned);
            }
            owned.release(guard);
        }
    }

    #[inline]
    pub(super) fn peek<'g>(&self, _guard: &'g Guard) -> Option<Borrowed<'g, T>> {
        // Acquire: pairs with the SeqCst in `swap`, so that the object is seen as it was published.
        let object = self.object.load(Ordering::Acquire);
        NonNull::new(object).map(|inner| Borrowed { inner, keeps: PhantomData })
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // Acquire: pairs with the SeqCst in `swap`, so that everything done before the slot was
        // emptied is seen.
        self.object.load(Ordering::Acquire).is_null()
    }

    #[inline]
    pub(super) fn swap(&self, new: Option<Owned<T>>) -> Option<Owned<T>> {
        // SeqCst: publishes the new object to `peek`, sees the old one as it was published, and
        // comes before a later SeqCst read of the old one's count: see `Count::get_ordered`.
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
