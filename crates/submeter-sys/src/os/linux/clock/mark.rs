//! A mark in the rseq area that the kernel takes away when it switches the thread.
//!
//! `rseq_cs` is made to point to a descriptor of an empty section. When the kernel returns to a
//! thread that was preempted, migrated or interrupted by a signal, it finds the thread outside that
//! section and clears the field. Whether it also does so for a thread that *waited* differs between
//! kernels (from 6.19 on it need not, since a section may not wait): the self-test asks.
//!
//! Every sequence, of whatever library, overwrites the mark, and the next sequence after a switch
//! would hide that the kernel had cleared it: so only this very descriptor counts as "not
//! switched", any other as "maybe". It is exact, and of no use on the backends where each update is
//! a sequence: an add between two looks is the rule there.
//!
//! Rejected: an update that looks at the field before it arms. A switch between the look and the
//! arming would be lost, and an exchange, which has no such gap, costs more than the update.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::rseq::armed_field;

/// Returns the calling thread's `rseq_cs`, if libc has registered the thread.
pub(crate) fn word() -> Option<NonNull<AtomicU64>> {
    let offset = crate::probe().libc_offset?;
    if crate::arch::SIGNATURE == 0 || !super::super::pin::keep_loaded() {
        return None;
    }
    NonNull::new(armed_field(offset).cast())
}

/// Returns the address of the descriptor of an empty section. Each call may return another one.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(never)]
pub(crate) fn descriptor() -> u64 {
    let descriptor;
    // SAFETY: 1. The code takes an address and no more. 2. The descriptor is static, and of the
    // shape that the kernel demands: an abort path behind the signature, outside a section of
    // length 0, in which no thread ever is.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_failure, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "4: ud2",
            ".popsection",
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 4b, 0, 4b",
            ".popsection",
            "lea {descriptor}, [rip + 77b]",
            descriptor = out(reg) descriptor,
            options(nomem, nostack, preserves_flags),
        );
    }
    descriptor
}

/// Returns the address of the descriptor of an empty section. Each call may return another one.
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[inline(never)]
pub(crate) fn descriptor() -> u64 {
    let descriptor;
    // SAFETY: 1. and 2. As on x86-64.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_failure, \"ax\", @progbits",
            ".inst 0xd428bc00",
            "4: brk #0",
            ".popsection",
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "77: .long 0, 0",
            ".quad 4b, 0, 4b",
            ".popsection",
            "adrp {descriptor}, 77b",
            "add {descriptor}, {descriptor}, :lo12:77b",
            descriptor = out(reg) descriptor,
            options(nomem, nostack, preserves_flags),
        );
    }
    descriptor
}

/// Never asked for: [`word`] has refused.
#[cfg(not(all(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    all(target_arch = "aarch64", target_endian = "little")
),)))]
pub(crate) fn descriptor() -> u64 {
    0
}
