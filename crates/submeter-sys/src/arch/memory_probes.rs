//! The places where profilers stop the thread.

use std::arch::{asm, global_asm};

// A byte of the program whose address the notes contain, so that a reader can tell how far the file
// was relocated after they were written. All users of such notes share one: hence the name and the
// group. Kept ("R"), because the linker would drop what only notes refer to.
global_asm!(
    ".pushsection .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .byte 0",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

/// An instruction that does nothing, and the note in the program's file that describes it: name,
/// kind, the place, the base and no semaphore; its provider, its name, its arguments. The note is
/// not loaded. It belongs to the section of the instruction ("?"), and is dropped with it.
macro_rules! probe {
    ($name:literal, $($arguments:tt)+) => {
        concat!(
            "990: nop\n",
            ".pushsection .note.stapsdt, \"?\", %note\n",
            ".balign 4\n",
            ".4byte 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b, _.stapsdt.base, 0\n",
            ".asciz \"otel_memory\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $($arguments)+,
            "\"\n",
            "994: .balign 4\n",
            ".popsection\n",
        )
    };
}

/// Defines both probes. Their arguments are in the registers of a call, which a note names with the
/// `mark` of the architecture's assembler.
macro_rules! probes {
    ($mark:literal, $first:tt, $second:tt, $third:tt) => {
        /// Not inlined: the probe is at one place in the program, and the arguments are where a
        /// call puts them anyway.
        #[inline(never)]
        pub(crate) fn probe_alloc(block: *const u8, size: u64, weighted_bytes: u64) {
            // SAFETY: 1. It executes an instruction that does nothing, and a listener there changes
            // nothing in this thread. 2. The stack is not used, and no flag is changed.
            unsafe {
                asm!(
                    probe!("alloc", "8@", $mark, $first, " 8@", $mark, $second, " 8@", $mark, $third),
                    in($first) block,
                    in($second) size,
                    in($third) weighted_bytes,
                    options(nostack, preserves_flags),
                );
            }
        }

        /// The same as `probe_alloc`, when the block is freed.
        #[inline(never)]
        pub(crate) fn probe_free(block: *const u8) {
            // SAFETY: 1 and 2. As in `probe_alloc`.
            unsafe {
                asm!(
                    probe!("free", "8@", $mark, $first),
                    in($first) block,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
probes!("%", "rdi", "rsi", "rdx");

#[cfg(target_arch = "aarch64")]
probes!("", "x0", "x1", "x2");
