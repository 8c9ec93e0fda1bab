//! An allocator that a signal handler may call: it hands out one block, to one handler at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

pub(crate) struct Anywhere;

/// With room for what the surrounding allocator records after the block.
#[repr(align(16))]
struct Place([AtomicU64; 16]);

static PLACE: Place = Place([const { AtomicU64::new(0) }; 16]);

// SAFETY: 1. The place is a static, and large and aligned enough for the layouts that the tests
// ask for. 2. Nobody uses the block, and only one handler at a time has it.
unsafe impl GlobalAlloc for Anywhere {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        PLACE.0.as_ptr().cast_mut().cast()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    /// The memory of the surrounding allocator, which is allocated before there are handlers.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 1. The caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
}

/// Allocates a block through `heap`, which wraps [`Anywhere`], or frees the block of the last call.
pub(crate) fn anywhere(heap: &impl GlobalAlloc, layout: Layout) {
    static HELD: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
    // Relaxed: only handlers of one thread run, and none interrupts another.
    let held = HELD.swap(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: 1. The layout is not of size 0. 2. The block is freed once, as it came.
    unsafe {
        if held.is_null() {
            // Relaxed: as above.
            HELD.store(heap.alloc(layout), Ordering::Relaxed);
        } else {
            heap.dealloc(held, layout);
        }
    }
}
