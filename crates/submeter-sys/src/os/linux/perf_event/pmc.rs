//! Reading one of the CPU's own counters, where user mode may.

/// Whether [`read`] exists on this target.
pub(crate) const READABLE: bool = cfg!(target_arch = "x86_64");

/// Reads the CPU's counter `index`. The upper bits of the result mean nothing.
///
/// # Safety
/// The page of an event, mapped in this process, has said that user mode may read counters, and
/// that this is the event's counter on the running CPU, or was on one of the same kind. Otherwise
/// the instruction traps.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn read(index: u32) -> u64 {
    let (low, high): (u64, u64);
    // Not `nomem`: loads from the page before and after it must stay in place. SAFETY: 1. The
    // instruction does not trap: the caller's promise. 2. It writes the two registers that are
    // named.
    unsafe {
        core::arch::asm!(
            "rdpmc",
            in("ecx") index,
            lateout("rax") low,
            lateout("rdx") high,
            options(nostack, preserves_flags),
        );
    }
    high << 32 | low
}

/// Never called: aarch64 would need a specially opened event and a different instruction for each
/// counter, and the system call already serves as the fallback.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn read(_: u32) -> u64 {
    0
}
