//! The allocator that samples.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};

use super::large::is_known;
use super::odds::EXACT;
use super::slots::{self, Slot};
use super::{places, samples};
use crate::exact::books;

/// An allocator that knows for a part of its blocks in which group they were allocated. See the
/// [module](crate::sampled).
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter_alloc::Sampled;
///
/// #[global_allocator]
/// static HEAP: Sampled<System> = Sampled::new(System);
///
/// assert!(Sampled::<System>::is_linked());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled<A> {
    inner: A,
}

impl<A> Sampled<A> {
    /// Samples the blocks of `inner`.
    pub const fn new(inner: A) -> Sampled<A> {
        Sampled { inner }
    }

    /// Returns the inner allocator, for example to read its statistics.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns whether the global allocator of this program is one of these.
    #[must_use]
    pub fn is_linked() -> bool {
        super::is_linked()
    }
}

impl<A: GlobalAlloc> Sampled<A> {
    /// # Safety
    /// 1. The layout is not of size 0.
    #[inline(always)]
    unsafe fn bare(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { if zeroed { self.inner.alloc_zeroed(layout) } else { self.inner.alloc(layout) } }
    }

    /// Allocates a block that is to be known, or one for which `pass` returned false.
    ///
    /// # Safety
    /// 1. The layout is not of size 0.
    #[cold]
    #[inline(never)]
    unsafe fn make(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        let size = layout.size();
        if is_known(layout) {
            // SAFETY: 1. The caller's promise.
            let block = unsafe { self.bare(layout, zeroed) };
            if !block.is_null() {
                samples::know(block, books::current(), size);
            }
            return block;
        }
        if let Some(slot) = samples::begin(layout, size) {
            let block = slot.block();
            if zeroed {
                // SAFETY: 1. The slot is ours, open, and large enough.
                unsafe { block.write_bytes(0, size) };
            }
            return block;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { self.bare(layout, zeroed) }
    }

    /// Resizes a block that is known or sampled, or that may become so.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout; the new size is neither 0 nor too large for the
    ///    alignment. 2. If the block is neither, grows, and does not become known, then a `pass` of
    ///    what it grows by has returned false.
    #[cold]
    #[inline(never)]
    unsafe fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let Some(slot) = Slot::of(block) {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.resize_in_slot(slot, layout, new) };
        }
        let old = layout.size();
        if is_known(layout) {
            // SAFETY: 1. The caller's promise.
            return unsafe { self.resize_known(block, layout, new) };
        }
        if size < EXACT
            && let Some(slot) = samples::begin(new, size - old)
        {
            // SAFETY: 1. The caller's promise: it is one of `inner`. 2. The slot is ours, open, and
            // large enough.
            unsafe { self.replace(block, layout, slot.block(), old) };
            return slot.block();
        }
        // SAFETY: 1. The caller's promise: it is one of `inner`.
        let moved = unsafe { self.inner.realloc(block, layout, size) };
        if size >= EXACT && !moved.is_null() {
            samples::know(moved, books::current(), size);
        }
        moved
    }

    /// Copies a block of `inner` to another place, and frees it.
    ///
    /// # Safety
    /// 1. The block is in use, with this layout, and one of `inner`. 2. `to` has `len` bytes that
    ///    nothing uses yet, and `len` is at most the block's size.
    unsafe fn replace(&self, block: *mut u8, layout: Layout, to: *mut u8, len: usize) {
        // SAFETY: 1 and 2. The caller's promises. The two do not overlap: only one of them is in
        // the range.
        unsafe {
            block.copy_to_nonoverlapping(to, len);
            self.inner.dealloc(block, layout);
        }
    }

    /// # Safety
    /// 1. The block is in use, with this layout, which is that of a known block; the new layout is
    ///    valid.
    unsafe fn resize_known(&self, block: *mut u8, old: Layout, new: Layout) -> *mut u8 {
        let owner = samples::take_out(block);
        if !is_known(new)
            && let Some(slot) = samples::shrink_known(owner, old.size(), new)
        {
            // SAFETY: 1. The caller's promise: it is one of `inner`. 2. The slot is ours, open, and
            // large enough.
            unsafe { self.replace(block, old, slot.block(), new.size()) };
            return slot.block();
        }
        // SAFETY: 1. The caller's promise: it is one of `inner`.
        let moved = unsafe { self.inner.realloc(block, old, new.size()) };
        if moved.is_null() {
            samples::put_back(block, owner, old.size());
        } else {
            samples::resized_known(moved, owner, old.size(), new);
        }
        moved
    }

    /// # Safety
    /// 1. The slot holds a block in use, with the old layout; the new layout is valid.
    unsafe fn resize_in_slot(&self, slot: Slot, old: Layout, new: Layout) -> *mut u8 {
        let (from, to) = (old.size(), new.size());
        if slot.fits(to) && to < EXACT {
            samples::resized(slot, slot, from, to);
            return slot.block();
        }
        // It grows.
        let other = if to < EXACT { samples::slot(new) } else { None };
        // SAFETY: 1. The caller's promise.
        let block = other.map_or_else(|| unsafe { self.bare(new, false) }, Slot::block);
        if block.is_null() {
            return block;
        }
        // SAFETY: 1. Both are used by this call alone, are at least that large, and do not overlap:
        // a slot that was just taken is a different one.
        unsafe { slot.block().copy_to_nonoverlapping(block, from) };
        match other {
            Some(other) => samples::resized(slot, other, from, to),
            None => samples::left(slot, block, to),
        }
        slot.put();
        block
    }

    /// Frees a block that lies in a slot.
    #[cold]
    #[inline(never)]
    fn free(block: *mut u8) {
        if let Some(slot) = Slot::of(block) {
            samples::end(slot);
            slot.put();
        }
    }
}

// SAFETY: 1. Every block is one of `inner`, which is an allocator, and is freed with the layout
// that it was allocated with; or it lies in a slot, as its address shows: accessible memory that is
// as large and as aligned as requested, and belongs to this block alone until the slot is put
// back. 2. Nothing unwinds: everything else adds to words, and wraps around. 3. Nothing re-enters
// except when `open` fails: its error allocates, which finds `places` busy and goes to `inner`,
// none of whose calls it interrupts.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Sampled<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_known(layout) && places::pass(layout.size()) {
            // SAFETY: 1. The caller's promise is for the same method: the layout is not of size 0.
            return unsafe { self.inner.alloc(layout) };
        }
        // SAFETY: 1. As above.
        unsafe { self.make(layout, false) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Only the comparison is inline; the rest is in a call that few blocks make.
        if slots::has(block) {
            return Self::free(block);
        }
        if is_known(layout) {
            samples::forget(block, layout.size());
        }
        // SAFETY: 1. The caller's promise: the block is in use, with this layout. 2. It is one of
        // `inner`, like all blocks outside slots.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_known(layout) && places::pass(layout.size()) {
            // SAFETY: 1. As in `alloc`.
            return unsafe { self.inner.alloc_zeroed(layout) };
        }
        // SAFETY: 1. As above.
        unsafe { self.make(layout, true) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let old = layout.size();
        let is_other = slots::has(block) || size >= EXACT || is_known(layout);
        if is_other || (size > old && !places::pass(size - old)) {
            // SAFETY: 1. The caller's promise. 2. As was just checked.
            return unsafe { self.resize(block, layout, size) };
        }
        // SAFETY: 1. The caller's promise: the block is in use, with this layout, and the new size
        // is neither 0 nor too large for the alignment. 2. It is one of `inner`.
        unsafe { self.inner.realloc(block, layout, size) }
    }
}
