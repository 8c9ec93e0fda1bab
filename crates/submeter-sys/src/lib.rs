//! The operating-system layer of submeter: restartable sequences, `membarrier`, CPU topology,
//! address space, CPU time, perf events.
//!
//! This crate holds the only `asm!` and the only system calls of submeter, and no policy: its
//! caller decides from [`probe()`] what to do where the kernel offers less. Users depend on the
//! `submeter` crate, not on this one.
//!
//! The sequences are described once, in `src/arch/PSEUDOCODE.md`, and implemented in one file for
//! each instruction set (x86-64, aarch64). On other Linux targets the probe says "unsupported", and
//! only speed is lost.
//!
//! Calls to the system are in `src/os`, once for Linux and once for all others: macOS and Windows
//! use locked adds by thread, and a system call for each reading of CPU time.
//!
//! # What may go wrong around a sequence, and why it does not
//!
//! - Preemption, migration or a signal in a sequence: the kernel aborts it; the caller retries a
//!   bounded number of times.
//! - A thread without registration: `cpu_id` is -1, and the sequence leaves with [`Exit::Outside`].
//! - A thread that ends: our own registrations end in the second round of pthread key destructors,
//!   before the memory is freed.
//! - Fork: registration, `membarrier` and the decision are inherited; a decision in progress is
//!   made again.
//! - The library is closed: it stays loaded, because the kernel may still read its descriptors.
//! - A sandbox refuses `rseq`, affinity or threads: the probe says which, and uses a lower backend.
//! - A kernel that does not abort when it must: the self-test notices, and the probe uses a lower
//!   backend.
//! - A kernel that may lose the restart that a barrier requests, or a sandbox that refuses
//!   `membarrier`: a thread visits each CPU.
//! - A thread is switched out while its clock extrapolates: the perf page shows it; without one,
//!   the kernel is queried after each interval that may have had a wait.
//! - A fork with a perf page mapped: the child has a hole there, so the clock compares the fork's
//!   generation before it reads.
//! - An allocator that calls the probe while it decides: it gets a provisional answer, no
//!   sequences.
//!
//! Tests: `tests/it/sequences.rs` (exactness under stress), `tests/inject` (every point inside
//! every sequence), `tests/worlds` (what is missing, refused or unloaded),
//! `tests/reentrant_probe.rs`; `proof/submeter-goldens` has the golden assembly.

#![expect(unsafe_code, reason = "the room for it: asm, system calls and mappings live here")]

pub mod barrier;
pub mod clock;
pub mod cpu;
pub mod fork;
#[cfg(submeter_inject)]
pub mod inject;
pub mod kernel;
pub mod membarrier;
pub mod memory;
#[cfg(feature = "memory-probes")]
pub mod memory_probes;
pub mod perf_event;
pub mod probe;
pub mod process_local;
mod row_hint;
pub mod rseq;
#[cfg(feature = "thread-context")]
pub mod thread_context;

mod arch;
mod cpu_rows;
mod os;
mod own_word;

pub use barrier::Barrier;
pub use cpu_rows::CpuRows;
pub use own_word::take_from_own;
pub use probe::{Backend, Probe, SelfTest, probe};
pub use row_hint::{ResolvedHint, RowHint, locked_rows, set_thread_number, thread_number};
pub use rseq::{AddOutcome, Exit, Gated, Rseq};

/// The distance between two rows of per-CPU words, in bytes: a little over 1 GiB where addresses
/// have 64 bits. Address space is reserved, not memory. A constant, so that the sequences multiply
/// by an immediate.
///
/// Not a power of two: otherwise all copies of a word would share one set of every cache and of the
/// TLB, which hold 16 or fewer, and a sum over 64 rows took 28 times as long. In each row, the
/// copies lie one line, one page of 4 KiB and one of 64 KiB further on. Sequences do not get
/// slower: a multiplication replaces a shift, and nothing waits for it.
///
/// It is a little over 4 MiB on Windows, where reserved memory counts as committed, over 1 MiB
/// where addresses have 32 bits, and over 64 KiB under Miri, which has no lazy memory.
pub const STRIDE: usize = if cfg!(miri) {
    (1 << 16) + SMALL_STEP
} else if cfg!(windows) {
    (1 << 22) + SMALL_STEP
} else if cfg!(target_pointer_width = "64") {
    (1 << 30) + (1 << 16) + SMALL_STEP
} else {
    (1 << 20) + SMALL_STEP
};

/// How far below 0 the batches of adds that test a mark have a boundary: the sequences that refuse
/// to leave a batch add this to words before they compare.
///
/// If a gauge's amounts are added on one CPU and removed on another, its words cross 0 again and
/// again, and there is no other number near which words stay like that: in a recorded kernel build
/// more than a third of the crossings were of 0. The value is about half of each batch size in use:
/// 2^12, 2^17 and 2^20. It costs two instructions.
pub const CENTRE: i32 = (1 << 11) + (1 << 16) + (1 << 19);

/// One line and one page.
const SMALL_STEP: usize = (1 << 6) + (1 << 12);
