//! A cell that holds an `RcuArc` and is read without a lock.

use std::fmt;

use super::arc::{RcuArc, RcuBorrow};
use super::guard::Guard;
use super::raw;
use crate::sync::model_const_fn;

/// A cell for the current version of a value: read by many, replaced occasionally, never locked.
///
/// [`peek`](Self::peek) costs a plain load; [`load`](Self::load) one locked instruction on the
/// object's count, which all readers share. Peek at values that are used only within a guard's
/// section. Writers cost an exchange and never wait for readers; the replaced object is freed after
/// a grace period once its last reference is gone. Do not use it for a value that is written as
/// often as read: every version is an allocation.
///
/// # Examples
/// ```
/// use submeter_percpu::rcuref::{RcuArc, RcuSlot, pin};
///
/// static CURRENT: RcuSlot<String> = RcuSlot::empty();
///
/// CURRENT.replace(RcuArc::new("v1".into()));
/// let guard = pin();
/// let kept = CURRENT.load(&guard).expect("filled above");
/// let seen = CURRENT.peek(&guard).expect("filled above");
/// CURRENT.replace(RcuArc::new("v2".into()));
/// assert_eq!((&**kept, &**seen), ("v1", "v1"));
/// assert_eq!(CURRENT.take().as_deref().map(String::as_str), Some("v2"));
/// assert!(CURRENT.load(&guard).is_none());
/// ```
///
/// A peeked value does not outlive the guard:
/// ```compile_fail,E0505
/// use submeter_percpu::rcuref::{RcuArc, RcuSlot, pin};
/// let slot = RcuSlot::new(RcuArc::new(1));
/// let guard = pin();
/// let seen = slot.peek(&guard);
/// drop(guard);
/// println!("{seen:?}");
/// ```
/// nor may a slot be used to shorten, then overwrite, the life of what it holds:
/// ```compile_fail
/// use submeter_percpu::rcuref::RcuSlot;
/// fn shrink<'a>(slot: &'a RcuSlot<&'static str>) -> &'a RcuSlot<&'a str> { slot }
/// ```
/// and only `Send + Sync` values are shared through one:
/// ```compile_fail,E0277
/// use submeter_percpu::rcuref::RcuSlot;
/// static SLOT: RcuSlot<std::cell::Cell<u8>> = RcuSlot::empty();
/// ```
///
/// # Ordering
/// A thread that loads a value sees everything that was done to it before it was stored. All
/// operations but `peek` are SeqCst; `peek` is Acquire.
///
/// # Differences from Linux
/// The kernel re-validates because a file's memory may be recycled under the reader. Here it is
/// not, and a reference to a version that was just replaced would be sound; the second check
/// provides the guarantee of [`take`](Self::take).
pub struct RcuSlot<T>(raw::Cell<T>);

impl<T> RcuSlot<T> {
    /// Creates a slot that holds `value`.
    #[must_use]
    pub fn new(value: RcuArc<T>) -> RcuSlot<T> {
        RcuSlot(raw::Cell::new(value.into_raw()))
    }

    model_const_fn! {
        /// Creates an empty slot.
        #[must_use]
        pub fn empty() -> RcuSlot<T> {
            RcuSlot(raw::Cell::empty())
        }
    }

    /// Takes a reference to the object in the slot, at a moment when it was there.
    ///
    /// Reads the pointer, takes a reference, and checks whether the pointer is still the same;
    /// retries if not, which happens only when it was replaced in between (lock-free, not
    /// wait-free).
    #[inline]
    #[must_use]
    pub fn load(&self, guard: &Guard) -> Option<RcuArc<T>> {
        self.0.load(guard).map(RcuArc::from_raw)
    }

    /// Borrows the object in the slot, without a reference: a plain load.
    ///
    /// Use it for reads that end with the guard, of objects that many threads read: it writes
    /// nothing, so CPUs that read the same object do not wait for each other, as they would take
    /// turns for a count. For anything kept longer, use [`load`](RcuSlot::load).
    #[inline]
    #[must_use]
    pub fn peek<'g>(&self, guard: &'g Guard) -> Option<RcuBorrow<'g, T>> {
        self.0.peek(guard).map(RcuBorrow::from_raw)
    }

    /// Returns whether the slot is empty: a plain load, without a guard. The answer may be stale
    /// when it is returned: [`peek`](Self::peek) may find a slot empty that was not.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Exchanges the contents, and returns the old ones.
    #[inline]
    pub fn swap(&self, new: Option<RcuArc<T>>) -> Option<RcuArc<T>> {
        self.0.swap(new.map(RcuArc::into_raw)).map(RcuArc::from_raw)
    }

    /// Stores `new`, and returns the old contents.
    #[inline]
    pub fn replace(&self, new: RcuArc<T>) -> Option<RcuArc<T>> {
        self.swap(Some(new))
    }

    /// Empties the slot, and returns its contents.
    ///
    /// When [`RcuArc::references`] of the result is then 1, and it was in no other slot, the
    /// reference of every [`load`](Self::load) that returned it has been dropped, and no load will
    /// return it again: the thread that took it out may close the underlying resource. Readers that
    /// [`peek`](Self::peek) are not counted; they need a grace period
    /// ([`Guard::defer`](super::Guard::defer)).
    #[inline]
    pub fn take(&self) -> Option<RcuArc<T>> {
        self.swap(None)
    }
}

impl<T> Default for RcuSlot<T> {
    fn default() -> RcuSlot<T> {
        RcuSlot::empty()
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = super::pin();
        f.debug_tuple("RcuSlot").field(&self.peek(&guard)).finish()
    }
}
