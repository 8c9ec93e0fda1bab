//! A part of a map, which is permanent once made.
#![allow(unsafe_code, reason = "memory that no allocator of ours may give")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A zeroed `T`, once made. It is never freed.
pub(crate) struct Leaf<T>(AtomicPtr<T>);

impl<T> Leaf<T> {
    pub(crate) const fn new() -> Leaf<T> {
        const { assert!(size_of::<T>() > 0) };
        Leaf(AtomicPtr::new(null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<NonNull<T>> {
        // Acquire: pairs with the AcqRel in `make`, so the leaf is seen zeroed.
        NonNull::new(self.0.load(Ordering::Acquire))
    }

    /// Makes it, unless another thread does. Returns `None` if memory is short.
    pub(crate) fn make(&self) -> Option<NonNull<T>> {
        let layout = Layout::new::<T>();
        // Not from the allocator that is being called: it may be dropped, may write the zeroes, and
        // is in the middle of a call. The system gives a large block a mapping of its own, which
        // takes memory only where it is first written. SAFETY: 1. The layout is not of size 0: see
        // `new`.
        let made = unsafe { System.alloc_zeroed(layout) };
        // AcqRel: other threads see this leaf zeroed, and this thread sees theirs zeroed.
        let put =
            self.0.compare_exchange(null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire);
        if put.is_err() && !made.is_null() {
            // SAFETY: 1. From above, with this layout, and not passed on.
            unsafe { System.dealloc(made, layout) };
        }
        self.get()
    }
}
