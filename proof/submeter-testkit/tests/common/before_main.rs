//! A block that the program allocates before `main`.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const CONTENT: [u8; 100] = [7; 100];

static BLOCK: AtomicPtr<[u8; 100]> = AtomicPtr::new(null_mut());

extern "C" fn allocate() {
    // Relaxed: there are no other threads yet.
    BLOCK.store(Box::into_raw(Box::new(CONTENT)), Ordering::Relaxed);
}

/// The C library calls it with the constructors of other languages.
#[used]
#[unsafe(link_section = ".init_array")]
static ALLOCATE: extern "C" fn() = allocate;

/// Returns the block, once.
pub(crate) fn block() -> Box<[u8; 100]> {
    // Relaxed: it was written before this thread began.
    let block = BLOCK.swap(null_mut(), Ordering::Relaxed);
    assert!(!block.is_null(), "it was allocated before `main`, and is taken once");
    // SAFETY: 1. It comes from `into_raw`, and nobody else has it.
    let block = unsafe { Box::from_raw(block) };
    assert_eq!(*block, CONTENT);
    block
}
