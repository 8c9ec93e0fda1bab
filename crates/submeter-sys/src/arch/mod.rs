//! One file an instruction set, each implementing `PSEUDOCODE.md`.

use std::sync::atomic::{AtomicU32, Ordering};

/// The name of our own area's symbol.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
macro_rules! own_area {
    () => {
        concat!(
            "submeter_sys_rseq_area_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH"),
        )
    };
}

// 64-bit pointers only: x32 and ILP32 lay the same registers out otherwise. Little-endian only: a
// big-endian AArch64 kernel reads another signature than `.inst` writes.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", target_os = "linux", not(miri)))]
#[path = "x86_64.rs"]
mod isa;

#[cfg(all(
    target_arch = "aarch64",
    target_pointer_width = "64",
    target_endian = "little",
    target_os = "linux",
    not(miri)
))]
#[path = "aarch64.rs"]
mod isa;

#[cfg(not(all(
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    target_pointer_width = "64",
    target_os = "linux",
    not(miri)
)))]
#[path = "none.rs"]
mod isa;

pub(crate) use isa::*;

pub(crate) mod pmc;

/// How the self-test's section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spin {
    /// It was let through and committed.
    Committed,
    /// The kernel aborted it.
    Aborted,
    /// It was not let through in the spins allowed.
    Timeout,
}

/// What the self-test's section shares with the thread that watches it.
#[derive(Debug, Default)]
pub(crate) struct SpinShared {
    /// The ticket that the watcher has let through; the section that holds it then commits.
    pub(crate) flag: AtomicU32,
    /// The ticket of the section that runs: the one store that a section makes before its commit.
    pub(crate) entered: AtomicU32,
    /// The ticket of the section that committed.
    pub(crate) result: AtomicU32,
}

/// Runs the self-test's section once. `ticket` is not 0 and differs from run to run.
pub(crate) fn spin_once(offset: isize, shared: &SpinShared, ticket: u32, spins: u32) -> Spin {
    let aborted = spin(offset, shared, ticket, spins);
    // Relaxed: written by this thread's own sections only.
    let committed = shared.result.load(Ordering::Relaxed) == ticket;
    match (aborted, committed) {
        (_, true) => Spin::Committed,
        (true, false) => Spin::Aborted,
        (false, false) => Spin::Timeout,
    }
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
    target_pointer_width = "64",
    target_os = "linux",
    not(miri)
))]
mod tests;
