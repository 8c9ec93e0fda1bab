//! AArch64. Implements `PSEUDOCODE.md`; each sequence commits with one plain `str`.
//!
//! Loads, adds and stores are separate instructions: an interrupt between them aborts the sequence,
//! which is why no exclusive pair and no LSE atomic is needed (both would be slower, and LSE would
//! be a locked write). Orderings: the sequences order nothing; `membarrier` supplies the barrier on
//! both sides.
//!
//! Refs: kernel `Documentation/userspace-api/rseq.rst`; the signature is `brk #0x45e0`, the one
//! that glibc registers (`sys/rseq.h`, `RSEQ_SIG`).

use std::arch::asm;

use crate::rseq::{AddOutcome, EXIT_ABORTED, EXIT_OUTSIDE, EXIT_UNMARKED};
use crate::{CENTRE, CpuRows, STRIDE};

#[path = "aarch64/own_area.rs"]
mod own_area;

pub(crate) use own_area::*;
pub(crate) use self_test::*;

/// The signature that precedes every abort path; must equal what the area was registered with.
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;

/// One sequence's `asm!`, with the operands of the delay points where they are compiled in.
///
/// x16 and x17 are clobbered: if the program's code is larger than 128 MiB, the linker gives a jump
/// from the abort path to its function in another section a veneer, and veneers use them.
#[cfg(not(submeter_inject))]
macro_rules! sequence {
    ($($part:tt)*) => { asm!($($part)* out("x16") _, out("x17") _) };
}
#[cfg(submeter_inject)]
macro_rules! sequence {
    ($($part:tt)*) => {
        asm!($($part)* inject = sym crate::inject::TABLE, out("x16") _, out("x17") _)
    };
}

/// Delay point `$n` (see `inject.rs`): nothing, or a bounded loop. Never between a comparison and
/// its branch, because it changes the flags.
#[cfg(not(submeter_inject))]
macro_rules! point {
    ($n:literal) => {
        ""
    };
}
#[cfg(submeter_inject)]
macro_rules! point {
    ($n:literal) => {
        concat!(
            "adrp x16, {inject}\n",
            "add x16, x16, :lo12:{inject}\n",
            "ldr w17, [x16, #4 * ",
            $n,
            "]\n",
            "cbz w17, 62f\n",
            "str w17, [x16, #16 + 4 * ",
            $n,
            "]\n",
            "63: subs w17, w17, #1\n",
            "b.ne 63b\n",
            "62:\n",
        )
    };
}

/// Emits the descriptor (label 77) and points `rseq_cs` to it; leaves the area's address in `area`.
macro_rules! arm {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", %progbits\n",
            ".balign 32\n",
            "77: .word 0, 0\n",
            ".quad 2f, 3f - 2f, 4f\n",
            ".popsection\n",
            "adrp {t}, 77b\n",
            "add {t}, {t}, :lo12:77b\n",
            "str {t}, [{area}, #8]\n",
            "2:\n",
            point!(0),
        )
    };
}

/// Loads the row's number into `t`, and jumps to `$outside` unless it is below `$rows`.
macro_rules! row {
    ($outside:literal, $rows:literal) => {
        concat!(
            row_number!($outside),
            point!(1),
            concat!("cmp {t:w}, ", $rows, "\n"),
            concat!("b.hs ", $outside, "\n"),
            point!(2),
        )
    };
}

/// The CPU's number. For a thread that is not registered it is above any number of rows.
#[cfg(not(submeter_mm_cid))]
macro_rules! row_number {
    ($outside:literal) => {
        "ldr {t:w}, [{area}, #4]\n"
    };
}

/// `mm_cid`. It is 0 for a thread that is not registered, so `cpu_id` is tested for that.
#[cfg(submeter_mm_cid)]
macro_rules! row_number {
    ($outside:literal) => {
        concat!(
            "ldr {t:w}, [{area}, #4]\n",
            "cmp {t:w}, #0\n",
            concat!("b.lt ", $outside, "\n"),
            "ldr {t:w}, [{area}, #24]\n",
        )
    };
}

/// The abort path of a sequence that leaves through a label.
macro_rules! abort_to_label {
    () => {
        concat!(
            "3:\n",
            ".pushsection __rseq_failure, \"ax\", %progbits\n",
            ".inst 0xd428bc00\n",
            "4: b {left}\n",
            ".popsection",
        )
    };
}

/// The abort path of a sequence that leaves through its end: all bits changed, and the reason.
macro_rules! abort_to_end {
    () => {
        concat!(
            "3:\n",
            "b 6f\n",
            ".inst 0xd428bc00\n",
            "4: mov {t}, {aborted}\n",
            "mov {changed}, #-1\n",
            "b 6f\n",
            "5: mov {t}, {outside}\n",
            "mov {changed}, #-1\n",
            "6:",
        )
    };
}

// Here, after the macros that it uses.
#[path = "aarch64/self_test.rs"]
mod self_test;

/// `row[cpu].word += n`, with rows `BYTES` bytes apart. Returns whether it was done.
///
/// # Safety
/// The same as [`crate::Rseq::add`].
#[inline(always)]
pub(crate) unsafe fn add<const BYTES: usize>(
    offset: isize,
    cpus: u32,
    word: *mut i64,
    n: i64,
) -> bool {
    // SAFETY: 1. `offset` is the thread's rseq area, upheld by the probe, which made the `Rseq`:
    // the store to `rseq_cs` and the load of `cpu_id` stay inside it. 2. `cpu < cpus` was checked,
    // and rows `0..cpus` of `word` are valid, upheld by the caller. 3. A jump to `left` leaves
    // registers and flags as clobbered as the compiler assumes; nothing was committed then.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "{cpus:w}"),
            "madd {t}, {t}, {stride}, {word}",
            "ldr {d}, [{t}]",
            "add {d}, {d}, {n}",
            point!(3),
            "str {d}, [{t}]",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            area = in(reg) area(offset),
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            stride = in(reg) BYTES,
            left = label { return false },
            options(nostack),
        );
    }
    true
}

/// `row[cpu].word += N` while `cpu < *mode`. Returns whether it was done.
///
/// # Safety
/// The same as [`crate::Gated::add_while`].
#[inline(always)]
pub(crate) unsafe fn add_while<const N: i32>(
    offset: isize,
    word: *mut i64,
    mode: *const u32,
) -> bool {
    // SAFETY: 1. The caller's promise.
    unsafe { add_value_while(offset, word, mode, N as i64) }
}

/// [`add_while`] with a value.
///
/// # Safety
/// The same as [`crate::Gated::add_while`].
#[inline(always)]
pub(crate) unsafe fn add_value_while(
    offset: isize,
    word: *mut i64,
    mode: *const u32,
    n: i64,
) -> bool {
    // SAFETY: 1. As in `add`, each condition, with the bound from `*mode`. 2. `*mode` is readable
    // and never more than the number of rows: the caller's promise.
    unsafe {
        sequence!(
            arm!(),
            "ldr {d:w}, [{mode}]",
            row!("{left}", "{d:w}"),
            "madd {t}, {t}, {stride}, {word}",
            "ldr {d}, [{t}]",
            "add {d}, {d}, {n}",
            point!(3),
            "str {d}, [{t}]",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            area = in(reg) area(offset),
            mode = in(reg) mode,
            word = in(reg) word,
            n = in(reg) n,
            stride = in(reg) STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}

/// `row[cpu].word += n` while `cpu < *mode`, unless the word would then be below 0 or above `cap`.
/// Returns whether it was done.
///
/// # Safety
/// The same as [`crate::Gated::add_capped`].
#[inline(always)]
pub(crate) unsafe fn add_capped(
    offset: isize,
    word: *mut i64,
    mode: *const u32,
    n: i64,
    cap: u64,
) -> bool {
    // SAFETY: 1. As in `add_value_while`, each condition.
    unsafe {
        sequence!(
            arm!(),
            "ldr {d:w}, [{mode}]",
            row!("{left}", "{d:w}"),
            "madd {t}, {t}, {stride}, {word}",
            "ldr {d}, [{t}]",
            "add {d}, {d}, {n}",
            "cmp {d}, {cap}",
            "b.hi {left}",
            point!(3),
            "str {d}, [{t}]",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            area = in(reg) area(offset),
            mode = in(reg) mode,
            word = in(reg) word,
            n = in(reg) n,
            cap = in(reg) cap,
            stride = in(reg) STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}

/// `row[cpu].word += n`; returns the new word, and which bits changed.
///
/// # Safety
/// The same as [`crate::Rseq::add_carry`].
#[inline(always)]
pub(crate) unsafe fn add_carry(offset: isize, cpus: u32, word: *mut i64, n: i64) -> AddOutcome {
    let (after, changed, at);
    // SAFETY: 1. As in `add`, each condition. 2. The outputs are initialised: every exit passes
    // label 6, each writes `at` and `changed`, and where nothing was added `after` keeps what its
    // register held.
    unsafe {
        sequence!(
            arm!(),
            row!("5f", "{cpus:w}"),
            "madd {t}, {t}, {stride}, {word}",
            "ldr {changed}, [{t}]",
            "add {after}, {changed}, {n}",
            "eor {changed}, {changed}, {after}",
            point!(3),
            "str {after}, [{t}]",
            abort_to_end!(),
            t = out(reg) at,
            after = out(reg) after,
            changed = out(reg) changed,
            area = in(reg) area(offset),
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            stride = in(reg) STRIDE,
            aborted = const EXIT_ABORTED,
            outside = const EXIT_OUTSIDE,
            options(nostack),
        );
    }
    AddOutcome { after, changed, at }
}

/// [`add_carry`], provided that bit `bit % 64` of `row[cpu].marks` is set.
///
/// # Safety
/// The same as [`crate::Rseq::add_marked`].
#[inline(always)]
pub(crate) unsafe fn add_marked(
    offset: isize,
    cpus: u32,
    word: *mut i64,
    n: i64,
    marks: *const u64,
    bit: u32,
) -> AddOutcome {
    let (after, changed, at);
    // SAFETY: 1. As in `add_carry`, each condition. 2. Rows `0..cpus` of `marks` are valid to read:
    // the caller's promise.
    unsafe {
        sequence!(
            arm!(),
            row!("5f", "{cpus:w}"),
            "mul {t}, {t}, {stride}",
            "ldr {changed}, [{marks}, {t}]",
            "lsr {changed}, {changed}, {bit:x}",
            "tbz {changed}, #0, 7f",
            "add {t}, {t}, {word}",
            "ldr {changed}, [{t}]",
            "add {after}, {changed}, {n}",
            "eor {changed}, {changed}, {after}",
            point!(3),
            "str {after}, [{t}]",
            "3:",
            "b 6f",
            ".inst 0xd428bc00",
            "4: mov {t}, {aborted}",
            "b 8f",
            "7: mov {t}, {unmarked}",
            "b 8f",
            "5: mov {t}, {outside}",
            "8: mov {changed}, #-1",
            "6:",
            t = out(reg) at,
            after = out(reg) after,
            changed = out(reg) changed,
            area = in(reg) area(offset),
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            marks = in(reg) marks,
            bit = in(reg) u64::from(bit),
            stride = in(reg) STRIDE,
            aborted = const EXIT_ABORTED,
            outside = const EXIT_OUTSIDE,
            unmarked = const EXIT_UNMARKED,
            options(nostack),
        );
    }
    AddOutcome { after, changed, at }
}

/// `row[cpu].word += n` unless that changes bits above `mask`. Returns whether it was done.
///
/// # Safety
/// The same as [`crate::Rseq::add_within`].
#[inline(always)]
pub(crate) unsafe fn add_within(
    offset: isize,
    cpus: u32,
    word: *mut i64,
    n: i64,
    mask: u64,
) -> bool {
    // SAFETY: 1. As in `add`, each condition.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "{cpus:w}"),
            "madd {t}, {t}, {stride}, {word}",
            "ldr {d}, [{t}]",
            "add {after}, {d}, {n}",
            "eor {d}, {d}, {after}",
            "cmp {d}, {mask}",
            "b.hi {left}",
            point!(3),
            "str {after}, [{t}]",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            after = out(reg) _,
            area = in(reg) area(offset),
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            mask = in(reg) mask,
            stride = in(reg) STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}

/// [`add_within`] for word `index` of the rows, provided that its line is marked: the lines' bits
/// begin `MARKS_AT` bytes into each row. Returns whether it was done.
///
/// # Safety
/// The same as [`CpuRows::add_marked_within`].
#[inline(always)]
pub(crate) unsafe fn add_indexed_within<const MARKS_AT: usize>(
    rows: &CpuRows,
    index: u32,
    n: i64,
    mask: u64,
) -> bool {
    // This instruction set has enough registers for addresses that are computed before a sequence.
    let (rseq, (word, marks, line)) = (rows.rseq(), rows.find::<MARKS_AT>(index));
    // SAFETY: 1. As in `add`, each condition. 2. The rows of `marks` are valid to read: the
    // caller's promise.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "{cpus:w}"),
            "mul {t}, {t}, {stride}",
            "ldr {d}, [{marks}, {t}]",
            "lsr {d}, {d}, {bit:x}",
            // Not `tbz`, which reaches only 32 KiB: the label may be further away.
            "tst {d}, #1",
            "b.eq {left}",
            "add {t}, {t}, {word}",
            "ldr {d}, [{t}]",
            "add {d}, {d}, {centre}",
            "add {after}, {d}, {n}",
            "eor {d}, {d}, {after}",
            "cmp {d}, {mask}",
            "b.hi {left}",
            "sub {after}, {after}, {centre}",
            point!(3),
            "str {after}, [{t}]",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            after = out(reg) _,
            area = in(reg) area(rseq.offset()),
            cpus = in(reg) rseq.cpus(),
            word = in(reg) word,
            n = in(reg) n,
            mask = in(reg) mask,
            marks = in(reg) marks,
            bit = in(reg) u64::from(line),
            centre = in(reg) i64::from(CENTRE),
            stride = in(reg) STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}
