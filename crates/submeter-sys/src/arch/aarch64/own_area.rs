//! Locates the calling thread's areas, ours and libc's, and reads their fields.

use std::arch::asm;

#[cfg(feature = "memory-probes")]
#[path = "../memory_probes.rs"]
mod memory_probes;
#[cfg(feature = "memory-probes")]
pub(crate) use memory_probes::{probe_alloc, probe_free};
#[cfg(feature = "thread-context")]
mod thread_context;
#[cfg(feature = "thread-context")]
pub(crate) use thread_context::publish_context;

/// Returns the distance of our own area from the thread pointer.
// Not inlined: the hidden symbol can be reached only from the library that links this crate.
#[cfg(not(submeter_plugin))]
#[inline(never)]
pub(crate) fn own_area_offset() -> isize {
    let offset;
    // SAFETY: 1. The entry exists: the linker makes one in this object's global offset table for
    // the named symbol.
    unsafe {
        asm!(
            concat!("adrp {offset}, :gottprel:", own_area!()),
            concat!("ldr {offset}, [{offset}, :gottprel_lo12:", own_area!(), "]"),
            offset = out(reg) offset,
            options(nostack, preserves_flags, pure, readonly),
        );
    }
    offset
}

/// Returns the thread pointer.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: 1. Reading the register has no effect: the AArch64 ABI allows it to every program.
    unsafe {
        asm!(
            "mrs {pointer}, tpidr_el0",
            pointer = out(reg) pointer,
            // Not `pure`: a coroutine resumed on another thread has another thread pointer.
            options(nostack, preserves_flags, nomem),
        );
    }
    pointer
}

/// Returns the addresses of `__rseq_size` and `__rseq_offset` in a static program, or null if its
/// libc lacks them.
#[cfg(target_feature = "crt-static")]
pub(crate) fn libc_symbols() -> (*const u32, *const isize) {
    let (size, offset);
    // SAFETY: 1. The entries exist: the linker fills them with the address, or with null because
    // the references are weak.
    unsafe {
        asm!(
            ".weak __rseq_size",
            ".weak __rseq_offset",
            "adrp {size}, :got:__rseq_size",
            "ldr {size}, [{size}, :got_lo12:__rseq_size]",
            "adrp {offset}, :got:__rseq_offset",
            "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
            size = out(reg) size,
            offset = out(reg) offset,
            options(nostack, preserves_flags, pure, readonly),
        );
    }
    (size, offset)
}

/// Returns the address of the calling thread's area.
#[inline(always)]
pub(crate) fn area(offset: isize) -> usize {
    thread_pointer().wrapping_add_signed(offset)
}

/// Reads a field of the calling thread's rseq area.
///
/// # Safety
/// `offset + field + 4` bytes from the thread pointer must be inside the thread's rseq area.
#[inline(always)]
pub(crate) unsafe fn read_u32(offset: isize, field: usize) -> u32 {
    let value;
    // SAFETY: 1. The four bytes are inside the area: the caller's promise. 2. The compiler keeps no
    // copy of a field that the kernel changes: the block is not `pure`.
    unsafe {
        asm!(
            "ldr {value:w}, [{at}]",
            value = out(reg) value,
            at = in(reg) area(offset) + field,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}
