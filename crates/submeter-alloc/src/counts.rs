//! A thread's words.

use std::cell::Cell;

/// What a thread has allocated and freed since it began.
///
/// # Examples
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static HEAP: submeter_alloc::Metered<System> = submeter_alloc::Metered::new(System);
///
/// let before = submeter_alloc::thread_counts();
/// drop(Box::new([0_u8; 100]));
/// let after = submeter_alloc::thread_counts();
/// assert_eq!(after.allocated_bytes - before.allocated_bytes, 100);
/// assert_eq!(after.freed_blocks - before.freed_blocks, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Bytes that were asked for, of blocks that were allocated.
    pub allocated_bytes: u64,
    /// Blocks that were allocated.
    pub allocated_blocks: u64,
    /// Bytes that were asked for, of blocks that were freed.
    pub freed_bytes: u64,
    /// Blocks that were freed.
    pub freed_blocks: u64,
}

/// In one cache line, because each block writes a count.
#[repr(align(32))]
struct Words {
    allocated_bytes: Cell<u64>,
    allocated_blocks: Cell<u64>,
    freed_bytes: Cell<u64>,
    freed_blocks: Cell<u64>,
}

thread_local! {
    /// Constant and without a destructor: such a value exists from its thread's first instruction
    /// to the last, and the first access registers no destructor, which would allocate.
    static WORDS: Words = const {
        Words {
            allocated_bytes: Cell::new(0),
            allocated_blocks: Cell::new(0),
            freed_bytes: Cell::new(0),
            freed_blocks: Cell::new(0),
        }
    };
}

const _: () = assert!(!std::mem::needs_drop::<Words>());

/// Wraps around, as a count may; an allocator must not panic.
#[inline(always)]
fn add(word: &Cell<u64>, n: u64) {
    word.set(word.get().wrapping_add(n));
}

#[inline(always)]
pub(crate) fn allocated(size: usize) {
    let count = |words: &Words| {
        add(&words.allocated_bytes, size as u64);
        add(&words.allocated_blocks, 1);
    };
    // It never fails because there is no destructor; `with` would contain code for a panic.
    let _ = WORDS.try_with(count);
}

#[inline(always)]
pub(crate) fn freed(size: usize) {
    let count = |words: &Words| {
        add(&words.freed_bytes, size as u64);
        add(&words.freed_blocks, 1);
    };
    let _ = WORDS.try_with(count);
}

/// Returns what the calling thread has allocated and freed since it began: all 0 where
/// [`Metered`](crate::Metered) is not the global allocator. Costs four loads.
#[must_use]
pub fn thread_counts() -> Counts {
    let read = |words: &Words| Counts {
        allocated_bytes: words.allocated_bytes.get(),
        allocated_blocks: words.allocated_blocks.get(),
        freed_bytes: words.freed_bytes.get(),
        freed_blocks: words.freed_blocks.get(),
    };
    WORDS.try_with(read).unwrap_or_default()
}
