//! The pointer interface: objects that are shared by count and looked up under a guard.

use std::fmt;
use std::ops::Deref;

use super::guard::Guard;
use super::raw;

/// A pointer to a counted value that readers may look up while it is being removed.
///
/// Compared with [`std::sync::Arc`], cloning costs the same one locked instruction. So does
/// dropping one of several references if no other thread counts at that moment, though it reads the
/// count first, which `Arc` does not. Otherwise, and for the last reference, a drop costs an epoch
/// guard and one or two more locked instructions; [`release`](RcuArc::release) uses the caller's
/// guard and never has to retry. In return a thread that merely *reads* the pointer, from a
/// [`RcuSlot`](super::RcuSlot) or a [`RcuBorrow`], can take a reference with one unconditional add
/// where `Weak::upgrade` needs a compare-and-swap loop, and an overflowing count leaks its object
/// where `Arc` aborts the process.
///
/// Do not use it for values that are not looked up: `Arc` drops more cheaply and frees at once. Do
/// not rely on when a value is dropped: it happens after a grace period, on any thread that
/// collects, and a panic in its `Drop` surfaces there.
///
/// # Examples
/// ```
/// use submeter_percpu::rcuref::{RcuArc, pin};
///
/// let config = RcuArc::new(String::from("quota=3"));
/// let other = config.clone();
/// assert_eq!(*other, "quota=3");
/// assert_eq!(RcuArc::references(&config), 2);
///
/// let guard = pin();
/// RcuArc::release(other, &guard);
/// assert_eq!(RcuArc::references(&config), 1);
/// ```
///
/// The value outlives every borrow and is dropped on any thread, so it must be `Send + 'static`:
/// ```compile_fail,E0277
/// use submeter_percpu::rcuref::RcuArc;
/// RcuArc::new(std::rc::Rc::new(1));
/// ```
/// ```compile_fail,E0597
/// use submeter_percpu::rcuref::RcuArc;
/// let local = 1;
/// RcuArc::new(&local);
/// ```
/// and only a value that is also `Sync` can be shared with other threads:
/// ```compile_fail,E0277
/// use submeter_percpu::rcuref::RcuArc;
/// let shared = RcuArc::new(std::cell::Cell::new(1));
/// std::thread::spawn(move || shared.set(2));
/// ```
///
/// # Ordering
/// Cloning is Relaxed, dropping is Release, and the last drop acquires all earlier ones: its `Drop`
/// sees everything that was done to the value through any reference.
///
/// # Differences from Linux
/// The object and its count are one allocation, which is never reused while a count is in flight;
/// a delayed mark of death can therefore not hit an object's successor at the same address.
pub struct RcuArc<T>(raw::Owned<T>);

impl<T> RcuArc<T> {
    /// Allocates `value` with one reference.
    #[must_use]
    pub fn new(value: T) -> RcuArc<T>
    where
        T: Send + 'static,
    {
        RcuArc(raw::Owned::new(value))
    }

    /// Drops a reference under the caller's guard: one locked instruction, with no load before it.
    ///
    /// Use it for references that CPUs take and drop at the same time: a drop whose exchange fails
    /// enters a guard of its own. A caller that has a guard for its lookups can use that one.
    #[inline]
    pub fn release(this: RcuArc<T>, guard: &Guard) {
        this.0.release(guard);
    }

    /// Borrows the value for as long as the guard lives, however long `this` lives.
    #[inline]
    #[must_use]
    pub fn borrow<'g>(this: &RcuArc<T>, guard: &'g Guard) -> RcuBorrow<'g, T> {
        RcuBorrow(this.0.borrow(guard))
    }

    /// Returns the number of references, including this one.
    ///
    /// The number is informational and may be stale when it is returned; above 2^31 it means
    /// "pinned". One conclusion is sound: see [`RcuSlot::take`](super::RcuSlot::take).
    #[must_use]
    pub fn references(this: &RcuArc<T>) -> u32 {
        this.0.references()
    }

    /// Returns whether both point to the same object.
    #[must_use]
    pub fn ptr_eq(this: &RcuArc<T>, other: &RcuArc<T>) -> bool {
        RcuArc::as_ptr(this) == RcuArc::as_ptr(other)
    }

    /// Returns the address of the value, to tell objects apart.
    #[must_use]
    pub fn as_ptr(this: &RcuArc<T>) -> *const T {
        this.0.as_ptr()
    }

    pub(super) fn into_raw(self) -> raw::Owned<T> {
        self.0
    }

    pub(super) fn from_raw(owned: raw::Owned<T>) -> RcuArc<T> {
        RcuArc(owned)
    }
}

impl<T> Clone for RcuArc<T> {
    /// Takes a reference: one locked instruction, never a loop, never a failure.
    #[inline]
    fn clone(&self) -> RcuArc<T> {
        RcuArc(self.0.duplicate())
    }
}

impl<T> Deref for RcuArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.value()
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A borrow of an object, without a reference, for as long as a guard lives.
///
/// It costs nothing to make, copy or drop. The object may have lost its last reference already: the
/// value can still be read, but it may have been replaced or closed, which
/// [`try_get`](RcuBorrow::try_get) detects. A borrow is for use within the guard's section;
/// anything kept longer needs a reference, and the compiler enforces this:
///
/// ```compile_fail,E0505
/// use submeter_percpu::rcuref::{RcuArc, pin};
/// let arc = RcuArc::new(1);
/// let guard = pin();
/// let borrow = RcuArc::borrow(&arc, &guard);
/// drop(guard);
/// println!("{}", *borrow);
/// ```
pub struct RcuBorrow<'g, T>(raw::Borrowed<'g, T>);

impl<'g, T> RcuBorrow<'g, T> {
    /// Takes a reference unless the last one is gone.
    ///
    /// Costs one unconditional locked instruction; `None` costs two, and is final.
    ///
    /// # Examples
    /// ```
    /// use submeter_percpu::rcuref::{RcuArc, pin};
    ///
    /// let guard = pin();
    /// let arc = RcuArc::new(7);
    /// let borrow = RcuArc::borrow(&arc, &guard);
    /// let second = borrow.try_get().expect("two references");
    /// RcuArc::release(arc, &guard);
    /// RcuArc::release(second, &guard);
    /// assert!(borrow.try_get().is_none());
    /// assert_eq!(*borrow, 7, "readable until the guard goes");
    /// ```
    ///
    /// # Ordering
    /// SeqCst. A caller that checks afterwards whether the pointer is still where it was found must
    /// do so with a SeqCst load, and the remover must use a SeqCst swap: with a Relaxed get, that
    /// second load could be performed before the count on weakly ordered machines, though x86 never
    /// shows it.
    #[inline]
    #[must_use]
    pub fn try_get(self) -> Option<RcuArc<T>> {
        self.0.try_get().map(RcuArc)
    }

    /// Returns the value, for as long as the guard lives.
    #[inline]
    #[must_use]
    pub fn value(self) -> &'g T {
        self.0.value()
    }

    pub(super) fn from_raw(borrowed: raw::Borrowed<'g, T>) -> RcuBorrow<'g, T> {
        RcuBorrow(borrowed)
    }
}

impl<T> Clone for RcuBorrow<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RcuBorrow<'_, T> {}

impl<T> Deref for RcuBorrow<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.value()
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuBorrow<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
