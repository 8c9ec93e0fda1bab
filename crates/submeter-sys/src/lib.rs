//! Kernel ABI of submeter: restartable sequences, `membarrier`, CPU topology, address space, CPU time, perf events.
//!
//! This crate holds the only `asm!` and the only system calls of submeter, and no policy: what to do
//! where the kernel offers less is decided by its caller from [`probe()`]. Users depend on the
//! `submeter` crate, not on this one.
//!
//! The sequences are described once, in `src/arch/PSEUDOCODE.md`, and implemented in one file for each
//! instruction set (x86-64, aarch64). On other Linux targets the probe says "unsupported" and nothing is
//! lost but speed; other systems are not supported.
//!
//! # What may go wrong around a sequence, and why it does not
//!
//! | event | answer |
//! |---|---|
//! | preemption, migration, signal in a sequence | the kernel aborts it; the caller tries again, a bounded number of times |
//! | a thread without registration | `cpu_id` is -1: the sequence leaves with [`Exit::Outside`] |
//! | a thread that ends | own registrations end in the second round of pthread key destructors, before the memory goes |
//! | fork | registration, `membarrier` and the decision are inherited; a decision under way is made anew |
//! | the library is closed | it stays loaded: the kernel may still look at its descriptors |
//! | a sandbox refuses `rseq`, `membarrier`, affinity or threads | the probe says which, and takes a lower rung |
//! | a kernel that does not abort when it must | the self-test notices, and takes a lower rung |
//! | a thread is switched out while its clock extrapolates | the perf page or the mark in the rseq area tells it, and the kernel is asked |
//! | a fork with a perf page mapped | the child has a hole there: the clock compares the fork's generation before it looks |
//! | an allocator that asks the probe while it decides | gets a provisional answer: no sequences |
//!
//! Tests: `tests/sequences.rs` (exactness under stress), `tests/inject.rs` (every point inside every
//! sequence), `tests/broken_worlds.rs`, `tests/unload.rs`, `tests/reentrant_probe.rs`, `tests/codegen.rs` (golden assembly).

#![expect(unsafe_code, reason = "the room for it: asm, system calls and mappings live here")]

pub mod clock;
pub mod cpu;
pub mod fork;
#[cfg(submeter_inject)]
pub mod inject;
pub mod kernel;
pub mod membarrier;
pub mod memory;
pub mod perf_event;
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
