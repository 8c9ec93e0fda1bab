//! The places where profilers stop the thread.

use std::arch::asm;

probe_base!();

/// Not inlined: one place in the program, and the arguments where a call has them anyway.
#[inline(never)]
pub(crate) fn probe_alloc(block: *const u8, size: u64, weighted_bytes: u64) {
    // SAFETY: 1. It executes an instruction that does nothing; what listens there changes nothing
    // of this thread. 2. The stack is not used, and no flag is changed.
    unsafe {
        asm!(
            probe!("alloc", "8@%rdi 8@%rsi 8@%rdx"),
            in("rdi") block,
            in("rsi") size,
            in("rdx") weighted_bytes,
            options(nostack, preserves_flags),
        );
    }
}

/// As `probe_alloc`.
#[inline(never)]
pub(crate) fn probe_free(block: *const u8) {
    // SAFETY: 1 and 2. As in `probe_alloc`.
    unsafe {
        asm!(probe!("free", "8@%rdi"), in("rdi") block, options(nostack, preserves_flags));
    }
}
