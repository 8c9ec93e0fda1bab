//! The grace period of per-CPU sequences, and the ways to wait for it.
//!
//! There are two ways. Where the kernel is known to restart every sequence that a [`membarrier`]
//! asks it to, that call suffices. Elsewhere a thread of ours also visits each CPU that the process
//! may use. A visit switches out any thread that is in a sequence on that CPU, and every kernel
//! since 4.18 restarts the sequence of a thread that it switches out (`os/linux/visits.rs` has the
//! argument).

use std::io;
use std::time::Duration;

use crate::{membarrier, os};

/// How a grace period is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// By the kernel's interrupt alone.
    Membarrier,
    /// By that interrupt, where available, and by a thread that visits each CPU.
    Visits,
}

impl Barrier {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Barrier::Membarrier => "membarrier",
            Barrier::Visits => "visits to each CPU",
        }
    }

    /// Returns how long a caller that does not depend on barriers should leave between two of them:
    /// at least a hundred times what one takes on two busy CPUs (the table `kill` of the bench).
    #[must_use]
    pub fn spacing(self) -> Duration {
        match self {
            Barrier::Membarrier => Duration::from_millis(1),
            Barrier::Visits => Duration::from_millis(20),
        }
    }
}

/// Waits until every sequence in progress in this process has committed, or will start again.
///
/// Costs what [`rseq_barrier`](membarrier::rseq_barrier) does. With [`Barrier::Visits`] some 40 µs
/// (`proof/submeter-bench/record/x86_64-linux/2026-11-28-visits.md`) for each CPU that the kernel
/// lets the process use, and milliseconds if those are busy. Concurrent callers share a round, and
/// a process of one thread needs none. It waits for as long as a real-time thread holds such a CPU:
/// see [`try_wait`]. Not for signal handlers.
///
/// # Errors
/// Those of [`rseq_barrier`](membarrier::rseq_barrier) with [`Barrier::Membarrier`]; with
/// [`Barrier::Visits`] those of `sched_setaffinity`, if a filter has forbidden that since the
/// start-up test.
///
/// # Ordering
/// A full barrier on the caller and on every CPU that may run a thread of this process: a sequence
/// that committed before is visible after; a sequence that starts after sees what the caller wrote
/// before.
pub fn wait() -> io::Result<()> {
    wait_at_most(None)
}

/// How long [`try_wait`] waits: a thousand times what a round takes on a busy machine, and several
/// times what a real-time thread, which the kernel limits to 95 % of each second, can add to it.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The same as [`wait`], but for at most [`PATIENCE`]: for callers that can do without the barrier.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] with [`Barrier::Visits`]: at once if the round in progress has
/// already taken as long, and on a thread that is already waiting (in a handler, or an allocator).
/// The round continues; [`waiting`] says where. Otherwise as for [`wait`].
///
/// # Ordering
/// The same as [`wait`], unless it fails.
pub fn try_wait() -> io::Result<()> {
    try_wait_for(PATIENCE)
}

/// The same as [`try_wait`], but for at most `patience`: for callers on which others wait, and
/// which will try again.
///
/// # Errors
/// As for [`try_wait`].
///
/// # Ordering
/// As for [`try_wait`].
pub fn try_wait_for(patience: Duration) -> io::Result<()> {
    wait_at_most(Some(patience))
}

fn wait_at_most(patience: Option<Duration>) -> io::Result<()> {
    match crate::probe().barrier {
        Barrier::Membarrier => membarrier::rseq_barrier(),
        Barrier::Visits => {
            // First, because it takes only microseconds. Visits alone suffice except in the windows
            // that SAFETY.md names. A build that injects faults omits this, so that visits are
            // tested.
            if !cfg!(submeter_inject)
                && crate::probe().membarrier.is_ok_and(membarrier::supports_rseq)
            {
                // Errors are ignored: this kernel need not have the barrier.
                let _ = membarrier::rseq_barrier();
            }
            os::visits::wait(patience)
        }
    }
}

/// Makes [`try_wait`] need only locks and system calls from now on, as a signal handler requires:
/// starts the visiting thread, which then stays. Costs a lock; nothing with
/// [`Barrier::Membarrier`].
pub fn prepare() {
    if crate::probe().barrier == Barrier::Visits {
        os::visits::prepare();
    }
}

/// Returns the CPU that the current round of visits is waiting for, and how long ago the round
/// began; `None` if no round is in progress. If that is seconds, a real-time thread holds the CPU,
/// or a thread of this process may run where the others may not (another cpuset).
#[must_use]
pub fn waiting() -> Option<(usize, Duration)> {
    os::visits::waiting()
}

/// Returns how many calls of [`try_wait`] and [`try_wait_for`] of this process gave up so far.
/// Until a later one succeeds, work that needs it stays half done: a charge near a limit may be
/// refused although it fits.
#[must_use]
pub fn given_up() -> u64 {
    os::visits::given_up().unwrap_or(0)
}
