//! Kernel ABI of submeter: restartable sequences, `membarrier`, CPU topology, address space.
//!
//! This crate holds the only `asm!` and the only system calls of submeter, and no policy: what to do
//! where the kernel offers less is decided by its caller from [`probe()`]. Users depend on the
//! `submeter` crate, not on this one.
//!
//! The sequences are described once, in `src/arch/PSEUDOCODE.md`, and implemented in one file for each
//! instruction set (x86-64, aarch64). Anywhere else the probe says "unsupported" and nothing is lost but
//! speed.

#![expect(unsafe_code, reason = "the room for it: asm, system calls and mappings live here")]

pub mod cpu;
#[cfg(submeter_inject)]
pub mod inject;
pub mod membarrier;
pub mod memory;
pub mod probe;
pub mod rseq;

mod arch;
mod own;
mod pin;
mod selftest;
mod thread;

pub use probe::{CpuHint, Probe, Rung, SelfTest, probe};
pub use rseq::{Added, Exit, Rseq};

/// The distance between two rows of per-CPU words, as a power of two: 1 GiB where addresses have 64
/// bits. Address space is reserved, not memory. A constant, so that the sequences shift by an immediate.
///
/// 1 MiB where addresses have 32 bits, 64 KiB under Miri, which has no lazy memory.
pub const STRIDE_SHIFT: u32 = if cfg!(miri) {
    16
} else if cfg!(target_pointer_width = "64") {
    30
} else {
    20
};
