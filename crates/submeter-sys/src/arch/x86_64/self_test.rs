//! The sequence that the self-test runs.

use std::arch::asm;

use crate::arch::SpinShared;

/// Runs the self-test's section. Returns whether it was aborted.
pub(crate) fn spin(offset: isize, shared: &SpinShared, ticket: u32, spins: u32) -> bool {
    // SAFETY: 1. `offset` is the thread's rseq area, upheld by the probe. 2. The three pointers
    // point to live atomics, accessed as whole aligned words. 3. The loop ends after `spins`
    // rounds.
    unsafe {
        sequence!(
            arm!(),
            "mov dword ptr [{entered}], {ticket:e}",
            "8:",
            "cmp dword ptr [{flag}], {ticket:e}",
            "je 9f",
            "pause",
            "dec {spins:e}",
            "jnz 8b",
            "jmp 6f",
            "9:",
            "mov dword ptr [{result}], {ticket:e}",
            abort_to_label!(),
            "6:",
            t = out(reg) _,
            spins = inout(reg) spins => _,
            ticket = in(reg) ticket,
            offset = in(reg) offset,
            flag = in(reg) shared.flag.as_ptr(),
            entered = in(reg) shared.entered.as_ptr(),
            result = in(reg) shared.result.as_ptr(),
            left = label { return true },
            options(nostack),
        );
    }
    false
}
