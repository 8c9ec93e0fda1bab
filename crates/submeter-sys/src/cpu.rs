//! CPUs: which may ever exist, and where this thread runs.

use std::io;

use crate::os;

/// Maximum number of CPUs handled here: Linux's own build-time maximum for x86-64 (`NR_CPUS` 8192).
pub const CPUS_MAX: usize = 8192;

/// Returns how many CPU numbers are possible on this boot: one more than the highest that can come
/// online. Hotplug never changes it, so per-CPU words are never re-indexed.
///
/// `None` when the kernel does not say (no `/sys`, or one that a sandbox made up), and on systems
/// other than Linux, where nothing is indexed by CPU.
#[must_use]
pub fn possible() -> Option<usize> {
    os::cpu::possible()
}

/// Returns the CPUs on which the calling thread may run.
///
/// # Errors
/// The error of `sched_getaffinity`; [`io::ErrorKind::Unsupported`] on systems other than Linux.
pub fn affinity() -> io::Result<Vec<usize>> {
    os::cpu::affinity()
}

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// The error of `sched_setaffinity`: `EINVAL` when none of them is online and allowed.
/// [`io::ErrorKind::Unsupported`] on systems other than Linux.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    os::cpu::set_affinity(cpus)
}

/// Returns the CPU that the calling thread ran on a moment ago, by a call into libc (2 to 70 ns).
/// Meant for set-up; sequences read the number from the rseq area. `None` on systems other than
/// Linux.
#[must_use]
pub fn current() -> Option<usize> {
    os::cpu::current()
}
