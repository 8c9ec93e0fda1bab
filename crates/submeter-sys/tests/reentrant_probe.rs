//! An allocator that calls the probe while the probe allocates gets an answer.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use submeter_sys::probe;

/// An allocator that calls the probe on each allocation, as one that counts with submeter would.
struct Asking;

static ON: AtomicBool = AtomicBool::new(false);
static PROVISIONAL: AtomicU64 = AtomicU64::new(0);

// SAFETY: 1. The allocator's promises hold: the system's allocator does all the work.
unsafe impl GlobalAlloc for Asking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a switch and a statistic.
        if ON.load(Ordering::Relaxed) && probe().reason.is_empty() {
            PROVISIONAL.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: 1. The caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: 1. The caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Asking = Asking;

/// A probe inside the probe is provisional; the outer one decides.
#[test]
fn a_probe_inside_the_probe_is_provisional() {
    // Relaxed: a switch.
    ON.store(true, Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(1)));
    let decided = probe();
    // Relaxed: as above.
    ON.store(false, Ordering::Relaxed);
    assert!(!decided.reason.is_empty(), "{decided:?}");
    assert!(PROVISIONAL.load(Ordering::Relaxed) > 0, "the probe allocates");
    assert!(std::ptr::eq(decided, probe()), "one answer");
}
