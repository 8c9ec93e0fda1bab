//! The sequence that the self-test runs.

use std::arch::asm;

use super::own_area::area;
use crate::arch::SpinShared;

/// Runs the self-test's section. Returns whether it was aborted.
pub(crate) fn spin(offset: isize, shared: &SpinShared, ticket: u32, spins: u32) -> bool {
    // SAFETY: 1. `offset` is the thread's rseq area, upheld by the probe. 2. The three pointers
    // point to live atomics, accessed as whole aligned words. 3. The loop ends after `spins`
    // rounds.
    unsafe {
        sequence!(
            arm!(),
            "str {ticket:w}, [{entered}]",
            "8:",
            "ldr {t:w}, [{flag}]",
            "cmp {t:w}, {ticket:w}",
            "b.eq 9f",
            "yield",
            "subs {spins:w}, {spins:w}, #1",
            "b.ne 8b",
            "b 6f",
            "9:",
            "str {ticket:w}, [{result}]",
            abort_to_label!(),
            "6:",
            t = out(reg) _,
            spins = inout(reg) spins => _,
            ticket = in(reg) ticket,
            area = in(reg) area(offset),
            flag = in(reg) shared.flag.as_ptr(),
            entered = in(reg) shared.entered.as_ptr(),
            result = in(reg) shared.result.as_ptr(),
            left = label { return true },
            options(nostack),
        );
    }
    false
}
