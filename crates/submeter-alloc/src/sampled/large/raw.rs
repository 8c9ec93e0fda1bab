//! A part of the map of known blocks, which stays once it was made.
#![allow(unsafe_code, reason = "memory that no allocator of ours may give")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU16, Ordering};

use super::LEAF;

type Entries = [AtomicU16; LEAF];

pub(super) struct Leaf(AtomicPtr<Entries>);

impl Leaf {
    pub(super) const fn new() -> Leaf {
        Leaf(AtomicPtr::new(null_mut()))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&'static Entries> {
        // Acquire: pairs with the AcqRel in `make`, so that it is found zeroed.
        let made = self.0.load(Ordering::Acquire);
        // SAFETY: 1. Null, or what `make` put here: memory of this layout, all zeroes, which are
        // entries, and never freed.
        unsafe { made.as_ref() }
    }

    /// Makes it, unless another thread does; none where memory is short.
    #[cold]
    pub(super) fn make(&self) -> Option<&'static Entries> {
        let layout = Layout::new::<Entries>();
        // Of the system, and not of the allocator that is being called: that may be of zeroes that
        // are written, and is in the middle of a call.
        // SAFETY: 1. The layout is not of size 0.
        let made = unsafe { System.alloc_zeroed(layout) };
        // AcqRel: what others find here is zeroed, and what this thread finds of theirs is.
        let put =
            self.0.compare_exchange(null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire);
        if put.is_err() && !made.is_null() {
            // SAFETY: 1. From above, with this layout, and given to nobody.
            unsafe { System.dealloc(made, layout) };
        }
        self.get()
    }
}
