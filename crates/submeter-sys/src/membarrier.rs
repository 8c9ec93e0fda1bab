//! `membarrier`: the grace period of per-CPU sequences.

use std::io;

use crate::os::membarrier::membarrier;

// linux/membarrier.h
const QUERY: i32 = 0;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

/// Returns the bit mask of supported commands, or why there is none (`ENOSYS`, a sandbox's
/// `EPERM`).
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::Unsupported`] on systems other than Linux, here and in
/// everything below.
pub fn query() -> io::Result<u32> {
    membarrier(QUERY).map(|mask| mask as u32)
}

/// Registers this process for [`rseq_barrier`]. Idempotent; survives fork, lost at exec.
///
/// # Errors
/// `EINVAL` when the kernel lacks the command (before 5.10), `ENOSYS` or `EPERM` in sandboxes.
pub fn register_rseq() -> io::Result<()> {
    // No cache and no lock: it is one system call per process, and a lock could be held by a thread
    // that a fork left behind.
    membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ).map(drop)
}

/// Waits until every running thread of this process has left, or been made to restart, the sequence
/// it was in. Costs 0.2 µs if the other CPUs are idle, otherwise one interrupt to each CPU that
/// runs a thread of this process (tens of µs): batch the work that waits for it.
///
/// # Errors
/// Only if [`register_rseq`] failed, or was undone by an exec that this code survived (impossible).
///
/// # Ordering
/// A full barrier on the caller and on every CPU that runs a thread of this process: a sequence
/// that committed before is visible after; a sequence that starts after sees what the caller wrote
/// before.
pub fn rseq_barrier() -> io::Result<()> {
    match membarrier(PRIVATE_EXPEDITED_RSEQ) {
        // EPERM means "not registered": a checkpoint restored into a new process loses the
        // registration without an exec. Try once more after registering; a second refusal is final.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
            membarrier(PRIVATE_EXPEDITED_RSEQ).map(drop)
        }
        result => result.map(drop),
    }
}

/// Returns whether [`rseq_barrier`] is among the commands of `mask`, as [`query`] returned it.
#[must_use]
pub fn supports_rseq(mask: u32) -> bool {
    let needed = (PRIVATE_EXPEDITED_RSEQ | REGISTER_PRIVATE_EXPEDITED_RSEQ) as u32;
    mask & needed == needed
}

/// Returns the names of the commands in `mask`, as in `linux/membarrier.h`, without their prefix.
pub fn names(mask: u32) -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 10] = [
        "GLOBAL",
        "GLOBAL_EXPEDITED",
        "REGISTER_GLOBAL_EXPEDITED",
        "PRIVATE_EXPEDITED",
        "REGISTER_PRIVATE_EXPEDITED",
        "PRIVATE_EXPEDITED_SYNC_CORE",
        "REGISTER_PRIVATE_EXPEDITED_SYNC_CORE",
        "PRIVATE_EXPEDITED_RSEQ",
        "REGISTER_PRIVATE_EXPEDITED_RSEQ",
        "GET_REGISTRATIONS",
    ];
    NAMES.into_iter().enumerate().filter(move |(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| name)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Registering twice is harmless and the barrier then works.
    #[test]
    fn registering_twice_is_harmless() {
        let Ok(mask) = query() else {
            eprintln!("skipped: this kernel has no membarrier");
            return;
        };
        if !supports_rseq(mask) {
            eprintln!("skipped: membarrier without rseq (kernel before 5.10)");
            return;
        }
        assert!(names(mask).any(|name| name == "PRIVATE_EXPEDITED_RSEQ"));
        register_rseq().expect("supported");
        register_rseq().expect("idempotent");
        for _ in 0..100 {
            rseq_barrier().expect("registered");
        }
    }
}
