//! The allocator, and nothing else that is unsafe.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};

use crate::counts;

/// Blocks of at least this size are counted after they are allocated: a program that asks for too
/// much is refused and may continue. Smaller ones are counted before: if there is no memory for
/// one, the program usually ends, and work after the call would need a stack frame, which costs as
/// much again as the counts.
const LARGE: usize = 4 << 10;

/// A wrapper around an allocator that counts what each thread allocates and frees.
///
/// Each call is passed on unchanged, so memory is exactly what the inner allocator returns: no
/// block grows, and each of the two may free what the other allocated.
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter_alloc::Metered;
///
/// #[global_allocator]
/// static HEAP: Metered<System> = Metered::new(System);
///
/// assert!(submeter_alloc::is_linked());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered<A> {
    inner: A,
}

impl<A> Metered<A> {
    /// Counts what `inner` allocates and frees.
    pub const fn new(inner: A) -> Metered<A> {
        Metered { inner }
    }

    /// Returns the inner allocator, for example to read its statistics.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

impl<A: GlobalAlloc> Metered<A> {
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn bare(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { if zeroed { self.inner.alloc_zeroed(layout) } else { self.inner.alloc(layout) } }
    }

    /// Allocates a block and counts it.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn make(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        if layout.size() >= LARGE {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.make_large(layout, zeroed) };
        }
        counts::allocated(layout.size());
        // SAFETY: 1. The caller's promise.
        unsafe { self.bare(layout, zeroed) }
    }

    /// Allocates a large block and counts it on success.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(never)]
    unsafe fn make_large(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        let block = unsafe { self.bare(layout, zeroed) };
        if !block.is_null() {
            counts::allocated(layout.size());
        }
        block
    }
}

// SAFETY: 1. Every block is one of `inner`, which is an allocator, and is freed there with the
// layout that it was allocated with: each call passes on its arguments, and returns what was
// returned.
// 2. Nothing unwinds: the extra work is in `counts`, whose sums wrap around, and whose thread-local
// words have no destructor that could have run. 3. Nothing re-enters: `counts` neither allocates
// nor frees.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Metered<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise is for the same method: the layout is not of size 0.
        unsafe { self.make(layout, false) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        counts::freed(layout.size());
        // SAFETY: 1. The caller's promise is for the same method: this block is in use, with this
        // layout. 2. It is one of `inner`, like every block.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. As in `alloc`.
        unsafe { self.make(layout, true) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: 1. The caller's promise is for the same method: this block is in use, with this
        // layout, and the new size is neither 0 nor too large for the alignment. 2. It is one of
        // `inner`, like every block.
        let moved = unsafe { self.inner.realloc(block, layout, size) };
        // Otherwise the block is unchanged.
        if !moved.is_null() {
            counts::freed(layout.size());
            counts::allocated(size);
        }
        moved
    }
}
