//! The grace period of per-CPU sequences: its users, and the ways to wait for it.
//!
//! Two ways. Where the kernel is known to restart every sequence that a [`membarrier`] asks it to,
//! that is all it takes. Elsewhere a thread of ours also visits each CPU that the process may use.
//! For that a thread in a sequence there is switched out, and every kernel since 4.18 restarts the
//! sequence of a thread that it switches out (`os/linux/visits.rs` has the argument).

use std::io;
use std::time::Duration;

use crate::{membarrier, os};

/// How a grace period is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// By the kernel's interrupt alone.
    Membarrier,
    /// By that, where there is one, and by a thread that visits each CPU.
    Visits,
}

impl Barrier {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Barrier::Membarrier => "membarrier",
            Barrier::Visits => "visits of each CPU",
        }
    }

    /// Returns how long a caller that can do without a barrier leaves between two of them: a
    /// hundred times what one takes on two busy CPUs, or more (the table `kill` of the bench).
    #[must_use]
    pub fn spacing(self) -> Duration {
        match self {
            Barrier::Membarrier => Duration::from_millis(1),
            Barrier::Visits => Duration::from_millis(20),
        }
    }
}

/// Waits until every sequence that is under way in this process has committed, or will start again.
///
/// Costs what [`rseq_barrier`](membarrier::rseq_barrier) does. With [`Barrier::Visits`] some 40 µs
/// (`proof/submeter-bench/record/x86_64-linux/2026-11-28-visits.md`) for each CPU that the kernel
/// lets the process use, and milliseconds where those are busy; callers that wait at the same time
/// share a round, and a process of one thread needs none. It waits for as long as a real-time
/// thread holds such a CPU: see [`try_wait`]. Not for signal handlers.
///
/// # Errors
/// Those of [`rseq_barrier`](membarrier::rseq_barrier) with [`Barrier::Membarrier`]; with
/// [`Barrier::Visits`] those of `sched_setaffinity`, if a filter forbids that since the start-up
/// test.
///
/// # Ordering
/// A full barrier on the caller and on every CPU that may run a thread of this process: a sequence
/// that committed before is visible after; a sequence that starts after sees what the caller wrote
/// before.
pub fn wait() -> io::Result<()> {
    wait_at_most(None)
}

/// For how long [`try_wait`] waits: a thousand times what a round takes on a busy machine, and
/// several times what a real-time thread that the kernel holds to 95 % of each second may add to
/// one.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// As [`wait`], but for [`PATIENCE`] at most: for callers that can do without.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] with [`Barrier::Visits`]: at once, if the round under way has taken
/// as long already, and on a thread that waits already (in a handler, or an allocator). The round
/// goes on; [`waiting`] says where. Otherwise as [`wait`].
///
/// # Ordering
/// As [`wait`], unless it fails.
pub fn try_wait() -> io::Result<()> {
    try_wait_for(PATIENCE)
}

/// As [`try_wait`], but for at most so long: for callers that somebody waits for, and that come
/// again.
///
/// # Errors
/// As there.
///
/// # Ordering
/// As there.
pub fn try_wait_for(patience: Duration) -> io::Result<()> {
    wait_at_most(Some(patience))
}

fn wait_at_most(patience: Option<Duration>) -> io::Result<()> {
    match crate::probe().barrier {
        Barrier::Membarrier => membarrier::rseq_barrier(),
        Barrier::Visits => {
            // First, as it takes microseconds: visits alone are enough for all but the windows that
            // SAFETY.md names. A build that injects faults does without, so that they are tested.
            if !cfg!(submeter_inject)
                && crate::probe().membarrier.is_ok_and(membarrier::supports_rseq)
            {
                // An error is one of a barrier that this kernel need not have.
                let _ = membarrier::rseq_barrier();
            }
            os::visits::wait(patience)
        }
    }
}

/// Makes [`try_wait`] a matter of locks and system calls from now on, as a signal handler demands:
/// the thread that visits is started, and stays. Costs a lock; nothing with
/// [`Barrier::Membarrier`].
pub fn prepare() {
    if crate::probe().barrier == Barrier::Visits {
        os::visits::prepare();
    }
}

/// Returns the CPU to which a round of visits is going, and how long ago it began; `None` where
/// none is under way. Seconds mean that a real-time thread holds the CPU, or that a thread of this
/// process may run where the others may not (another cpuset).
#[must_use]
pub fn waiting() -> Option<(usize, Duration)> {
    os::visits::waiting()
}

/// Returns how many calls of [`try_wait`] and [`try_wait_for`] of this process gave up so far.
/// Until a later one succeeds, work that needs it is left half done: a charge near a limit may be
/// refused although it fits.
#[must_use]
pub fn given_up() -> u64 {
    os::visits::given_up().unwrap_or(0)
}
