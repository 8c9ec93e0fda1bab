//! x86-64. Implements `PSEUDOCODE.md`; each sequence commits with one plain store or `add` to
//! memory.
//!
//! Instructions that matter: `add mem, imm` and `mov mem, reg` are single instructions, so an
//! interrupt comes before or after them and never between load and store; no `lock` is needed
//! because no other CPU writes the word. `bt reg, reg` takes the bit number modulo 64; the form
//! with a memory operand would not, and is slow.
//!
//! Refs: kernel `Documentation/userspace-api/rseq.rst`; the signature is the one glibc registers
//! (`sys/rseq.h`, `RSEQ_SIG`), preceded by the bytes of a `ud1` so that a disassembler stays in
//! step.
//!
//! Stable Rust does not allow `label` blocks together with outputs. Sequences that return values
//! therefore leave through their own end, with a register that says why. Those on hot paths return
//! no values: they refuse rare cases, and the caller then uses one of the others.

use std::arch::asm;

use crate::rseq::{AddOutcome, EXIT_ABORTED, EXIT_OUTSIDE, EXIT_UNMARKED};
use crate::{CENTRE, CpuRows, STRIDE};

#[path = "x86_64/own_area.rs"]
mod own_area;

pub(crate) use own_area::*;
pub(crate) use self_test::*;

/// The signature that precedes every abort path; must equal what the area was registered with.
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

/// One sequence's `asm!`, with the operands of the delay points where they are compiled in.
#[cfg(not(submeter_inject))]
macro_rules! sequence {
    ($($part:tt)*) => { asm!($($part)*) };
}
#[cfg(submeter_inject)]
macro_rules! sequence {
    ($($part:tt)*) => { asm!($($part)* inject = sym crate::inject::TABLE, out("r11") _) };
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
            "mov r11d, dword ptr [rip + {inject} + 4 * ",
            $n,
            "]\n",
            "test r11d, r11d\n",
            "jz 62f\n",
            "mov dword ptr [rip + {inject} + 16 + 4 * ",
            $n,
            "], 1\n",
            "63: dec r11d\n",
            "jnz 63b\n",
            "62:\n",
        )
    };
}

/// Emits the descriptor (label 77) and points `rseq_cs` to it. Numeric labels, because one sequence
/// is inlined many times; not 0 or 1, which LLVM reads as binary numbers.
macro_rules! arm {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 2f, 3f - 2f, 4f\n",
            ".popsection\n",
            "lea {t}, [rip + 77b]\n",
            "mov qword ptr fs:[{offset} + 8], {t}\n",
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
            concat!("cmp {t:e}, ", $rows, "\n"),
            concat!("jae ", $outside, "\n"),
            point!(2),
        )
    };
}

/// The CPU's number. For a thread that is not registered it is above any number of rows.
#[cfg(not(submeter_mm_cid))]
macro_rules! row_number {
    ($outside:literal) => {
        "mov {t:e}, dword ptr fs:[{offset} + 4]\n"
    };
}

/// `mm_cid`. It is 0 for a thread that is not registered, so `cpu_id` is tested for that.
#[cfg(submeter_mm_cid)]
macro_rules! row_number {
    ($outside:literal) => {
        concat!(
            "cmp dword ptr fs:[{offset} + 4], 0\n",
            concat!("js ", $outside, "\n"),
            "mov {t:e}, dword ptr fs:[{offset} + 24]\n",
        )
    };
}

/// The abort path of a sequence that leaves through a label.
macro_rules! abort_to_label {
    () => {
        concat!(
            "3:\n",
            ".pushsection __rseq_failure, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "4: jmp {left}\n",
            ".popsection",
        )
    };
}

/// The abort path of a sequence that leaves through its end: all bits changed, and the reason.
macro_rules! abort_to_end {
    () => {
        concat!(
            "3:\n",
            ".pushsection __rseq_failure, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "4: mov {t:e}, {aborted}\n",
            "mov {changed}, -1\n",
            "jmp 6f\n",
            "5: mov {t:e}, {outside}\n",
            "mov {changed}, -1\n",
            "jmp 6f\n",
            ".popsection\n",
            "6:",
        )
    };
}

// Here, after the macros that it uses.
#[path = "x86_64/self_test.rs"]
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
            row!("{left}", "{cpus:e}"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            "mov {d}, qword ptr [{t}]",
            "lea {d}, [{d} + {n}]",
            point!(3),
            "mov qword ptr [{t}], {d}",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            offset = in(reg) offset,
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            stride = const BYTES,
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
    // SAFETY: 1. As in `add`, each condition, with the bound from `*mode`. 2. `*mode` is
    // readable and never more than the number of rows: the caller's promise.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "dword ptr [{mode}]"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            point!(3),
            "add qword ptr [{t}], {n}",
            abort_to_label!(),
            t = out(reg) _,
            offset = in(reg) offset,
            mode = in(reg) mode,
            word = in(reg) word,
            n = const N,
            stride = const STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
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
    // SAFETY: 1. As in `add_while`, each condition.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "dword ptr [{mode}]"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            "mov {d}, qword ptr [{t}]",
            "lea {d}, [{d} + {n}]",
            point!(3),
            "mov qword ptr [{t}], {d}",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            offset = in(reg) offset,
            mode = in(reg) mode,
            word = in(reg) word,
            n = in(reg) n,
            stride = const STRIDE,
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
    // SAFETY: 1. As in `add_while`, each condition.
    unsafe {
        sequence!(
            arm!(),
            row!("{left}", "dword ptr [{mode}]"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            "mov {d}, qword ptr [{t}]",
            "lea {d}, [{d} + {n}]",
            "cmp {d}, {cap}",
            "ja {left}",
            point!(3),
            "mov qword ptr [{t}], {d}",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            offset = in(reg) offset,
            mode = in(reg) mode,
            word = in(reg) word,
            n = in(reg) n,
            cap = in(reg) cap,
            stride = const STRIDE,
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
            row!("5f", "{cpus:e}"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            "mov {after}, qword ptr [{t}]",
            "mov {changed}, {after}",
            "lea {after}, [{after} + {n}]",
            "xor {changed}, {after}",
            point!(3),
            "mov qword ptr [{t}], {after}",
            abort_to_end!(),
            t = out(reg) at,
            after = out(reg) after,
            changed = out(reg) changed,
            offset = in(reg) offset,
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            stride = const STRIDE,
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
            row!("5f", "{cpus:e}"),
            "imul {t}, {t}, {stride}",
            "mov {changed}, qword ptr [{marks} + {t}]",
            "bt {changed}, {bit:r}",
            "jnc 7f",
            "add {t}, {word}",
            "mov {after}, qword ptr [{t}]",
            "mov {changed}, {after}",
            "lea {after}, [{after} + {n}]",
            "xor {changed}, {after}",
            point!(3),
            "mov qword ptr [{t}], {after}",
            abort_to_end!(),
            ".pushsection __rseq_failure, \"ax\", @progbits",
            "7: mov {t:e}, {unmarked}",
            "mov {changed}, -1",
            "jmp 6b",
            ".popsection",
            t = out(reg) at,
            after = out(reg) after,
            changed = out(reg) changed,
            offset = in(reg) offset,
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            marks = in(reg) marks,
            bit = in(reg) bit,
            stride = const STRIDE,
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
            row!("{left}", "{cpus:e}"),
            "imul {t}, {t}, {stride}",
            "add {t}, {word}",
            "mov {d}, qword ptr [{t}]",
            "lea {after}, [{d} + {n}]",
            "xor {d}, {after}",
            "cmp {d}, {mask}",
            "ja {left}",
            point!(3),
            "mov qword ptr [{t}], {after}",
            abort_to_label!(),
            t = out(reg) _,
            d = out(reg) _,
            after = out(reg) _,
            offset = in(reg) offset,
            cpus = in(reg) cpus,
            word = in(reg) word,
            n = in(reg) n,
            mask = in(reg) mask,
            stride = const STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}

/// [`add_within`] for word `index` of the rows, provided that its line is marked: the lines' bits
/// begin `MARKS_AT` bytes into each row. Returns whether it was done.
///
/// Everything it needs is loaded and computed here: a value that a caller computes before the
/// sequence takes a register of its own, and there are not enough registers.
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
    const { assert!(MARKS_AT <= i32::MAX as usize, "a displacement") };
    // SAFETY: 1. As in `add`, each condition, for the word that `CpuRows::add_marked_within` names.
    // 2. The marks are valid to read in the same rows: the caller's promise. 3. The three fields
    // are loaded from a reference.
    unsafe {
        sequence!(
            "movsxd {offset}, dword ptr [{rows} + {offset_at}]",
            arm!(),
            row!("{left}", "dword ptr [{rows} + {cpus_at}]"),
            "imul {t}, {t}, {stride}",
            "add {t}, qword ptr [{rows} + {base_at}]",
            // The area is no longer needed: from here on the register holds bits.
            "mov {offset:e}, {index:e}",
            "shr {offset:e}, {marks_shift}",
            "mov {offset}, qword ptr [{t} + 8 * {offset} + {marks_at}]",
            "mov {after:e}, {index:e}",
            "shr {after:e}, {line_shift}",
            "bt {offset}, {after}",
            "jnc {left}",
            "lea {t}, [{t} + 8 * {index:r}]",
            "mov {offset}, qword ptr [{t}]",
            "add {offset}, {centre}",
            "lea {after}, [{offset} + {n}]",
            "xor {offset}, {after}",
            "cmp {offset}, {mask}",
            "ja {left}",
            "sub {after}, {centre}",
            point!(3),
            "mov qword ptr [{t}], {after}",
            abort_to_label!(),
            t = out(reg) _,
            offset = out(reg) _,
            after = out(reg) _,
            rows = in(reg) rows,
            // 64 bits wide: with a 32-bit operand the upper half of the register is undefined.
            index = in(reg) u64::from(index),
            n = in(reg) n,
            mask = in(reg) mask,
            base_at = const CpuRows::BASE_AT,
            offset_at = const CpuRows::OFFSET_AT,
            cpus_at = const CpuRows::CPUS_AT,
            marks_at = const MARKS_AT,
            marks_shift = const CpuRows::LINE_WORDS.ilog2() + 64_u32.ilog2(),
            line_shift = const CpuRows::LINE_WORDS.ilog2(),
            centre = const CENTRE,
            stride = const STRIDE,
            left = label { return false },
            options(nostack),
        );
    }
    true
}
