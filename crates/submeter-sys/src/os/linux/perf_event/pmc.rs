//! Reading a counter of the CPU's own, where user mode may.

/// Whether [`read`] exists here at all.
pub(crate) const READABLE: bool = cfg!(target_arch = "x86_64");

/// Reads the CPU's counter `index`, whose upper bits mean nothing.
///
/// # Safety
/// The page of an event that is mapped in this process has said that user mode may read counters,
/// and that this is its counter on the running CPU or was on one of the same kind: the instruction
/// traps otherwise.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn read(index: u32) -> u64 {
    let (low, high): (u64, u64);
    // Not `nomem`: loads from the page before and after must stay there. SAFETY: 1. The instruction
    // does not trap: the caller's promise. 2. It writes the two registers that are named.
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

/// Never called: aarch64 would need an event opened for it and an instruction for each counter, for
/// which a system call is the fallback that is there already.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn read(_: u32) -> u64 {
    0
}
