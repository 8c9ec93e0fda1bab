//! One file an instruction set, each implementing `PSEUDOCODE.md`.

use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[path = "x86_64.rs"]
mod isa;

#[cfg(all(target_arch = "aarch64", target_os = "linux", not(miri)))]
#[path = "aarch64.rs"]
mod isa;

#[cfg(any(
    miri,
    not(target_os = "linux"),
    not(any(target_arch = "x86_64", target_arch = "aarch64"))
))]
#[path = "none.rs"]
mod isa;

pub(crate) use isa::*;

/// How the self-test's section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spin {
    /// It saw the flag change and committed.
    Committed,
    /// The kernel aborted it.
    Aborted,
    /// The flag did not change in the spins allowed.
    Timeout,
}

/// What the self-test's section shares with the thread that watches it.
#[derive(Debug, Default)]
pub(crate) struct SpinShared {
    /// Written by the watcher, awaited inside the section.
    pub(crate) flag: AtomicU32,
    /// Set to 1 inside the section: the one store that a section makes before its commit.
    pub(crate) entered: AtomicU32,
    /// Set to 1 by the commit.
    pub(crate) result: AtomicU32,
}

/// Runs the self-test's section once.
pub(crate) fn spin_once(offset: isize, shared: &SpinShared, spins: u32) -> Spin {
    // Relaxed: only this thread, and the section it runs next, write it.
    shared.result.store(0, Ordering::Relaxed);
    let aborted = spin(offset, shared, spins);
    // Relaxed: written by this thread's own section or not at all.
    match (aborted, shared.result.load(Ordering::Relaxed)) {
        (true, _) => Spin::Aborted,
        (false, 0) => Spin::Timeout,
        (false, _) => Spin::Committed,
    }
}
