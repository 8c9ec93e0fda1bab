//! The features that this process can use, decided once, with the reason.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::barrier::Barrier;
use crate::os::{self, thread};
use crate::row_hint::RowHint;
use crate::rseq::{MM_CID_END, Rseq};

/// The ways to update words, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Sequences, on the area that libc registers for every thread.
    LibcRseq,
    /// Sequences, on an area that this crate registers for each thread that needs one.
    OwnRseq,
    /// Locked adds in words of the running CPU, whose number is read from libc's area by one load.
    LockedByCpu,
    /// Locked adds in words chosen by thread.
    LockedByThread,
}

impl Backend {
    /// Returns a short name, as `submeter doctor` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Backend::LibcRseq => "rseq (libc's registration)",
            Backend::OwnRseq => "rseq (own registration)",
            Backend::LockedByCpu => "locked adds by CPU",
            Backend::LockedByThread => "locked adds by thread",
        }
    }

    /// Returns a name for programs, as in the JSON of `submeter doctor`.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Backend::LibcRseq => "libc_rseq",
            Backend::OwnRseq => "own_rseq",
            Backend::LockedByCpu => "locked_by_cpu",
            Backend::LockedByThread => "locked_by_thread",
        }
    }
}

/// What the self-test found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Both promises were kept each time.
    Passed,
    /// Each preemption was handled as promised, but no barrier met a running sequence: the process
    /// may use only one CPU, or the machine was too busy for two threads to run at the same time.
    /// Sequences are used, because the kernel's release (or `SUBMETER_RSEQ=trust`) vouches for
    /// barriers before the test begins.
    PassedWithoutBarrier,
    /// A sequence committed although its thread had been preempted in it.
    CommittedAfterPreemption,
    /// A sequence committed although a barrier had returned while it ran, or a thread of ours had
    /// visited its CPU.
    CommittedAfterBarrier,
    /// No sequence could be interrupted (no time, no threads, no affinity, a barrier refused), so
    /// nothing is known.
    Inconclusive,
    /// Not run: there was no need or no way.
    NotRun,
}

impl SelfTest {
    /// Returns whether sequences may be used after this result.
    #[must_use]
    pub fn passed(self) -> bool {
        matches!(self, SelfTest::Passed | SelfTest::PassedWithoutBarrier)
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelfTest::Passed => "passed",
            SelfTest::PassedWithoutBarrier => {
                "passed for preemptions; barriers rely on the kernel's release, as no two threads \
                 ran at once"
            }
            SelfTest::CommittedAfterPreemption => {
                "failed: a sequence committed after a preemption on the same CPU"
            }
            SelfTest::CommittedAfterBarrier => "failed: a sequence committed after a barrier",
            SelfTest::Inconclusive => {
                "inconclusive: no sequence was interrupted with the time and threads allowed"
            }
            SelfTest::NotRun => "not run",
        })
    }
}

/// The findings and the decision.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The backend in use.
    pub backend: Backend,
    /// Why no better backend is in use; for the best one, what confirmed it.
    pub reason: String,
    /// One more than the highest CPU number that can come online, if the kernel says.
    pub cpus: Option<usize>,
    /// The size of the area that libc registered, 0 if it registered none, `None` if it has no
    /// support.
    pub libc_area_bytes: Option<u32>,
    /// How much of the area this kernel fills in (`AT_RSEQ_FEATURE_SIZE`), 0 before Linux 6.3.
    pub kernel_feature_bytes: u64,
    /// The bit mask of `membarrier` commands, or the error number.
    pub membarrier: Result<u32, i32>,
    /// What the self-test found.
    pub self_test: SelfTest,
    /// How sequences are waited for. [`Barrier::Visits`] only if sequences are used.
    pub barrier: Barrier,
    /// From the thread pointer to libc's area, where it has registered the deciding thread.
    pub(crate) libc_offset: Option<isize>,
    pub(crate) rseq: Option<Rseq>,
}

impl Probe {
    /// Returns the sequences, if they work here.
    #[must_use]
    pub fn rseq(&self) -> Option<Rseq> {
        self.rseq
    }

    /// Returns the way to learn the running CPU at the price of a load, where libc's area tells it.
    #[must_use]
    pub fn cpu_hint(&self) -> Option<RowHint> {
        // SAFETY: 1. Every thread has libc's area there: libc says so, and the probe found that it
        // registered this thread.
        self.libc_offset.and_then(|offset| unsafe { RowHint::of_cpu(offset) })
    }

    /// Returns how to find the calling thread's row by one load: by its CPU, or else by its own
    /// number, which [`thread_number`](crate::thread_number) assigns.
    #[must_use]
    pub fn row_hint(&self) -> RowHint {
        self.cpu_hint().unwrap_or_else(RowHint::of_thread)
    }

    /// Returns whether the threads' areas, libc's or our own, have an `mm_cid`.
    #[must_use]
    pub fn has_mm_cid(&self) -> bool {
        // Our own area has room for it.
        let own = self.libc_offset.is_none() && self.kernel_feature_bytes >= MM_CID_END;
        own || self.mm_cid_offset().is_some()
    }

    pub(crate) fn mm_cid_offset(&self) -> Option<isize> {
        // The area that libc declares may be smaller than what the kernel fills in: both must
        // reach. glibc before 2.41 declares 20 or 32 whatever the kernel offers, but allocates 32.
        let area = match self.libc_area_bytes? {
            0 => return None,
            20 => 32,
            bytes => u64::from(bytes),
        };
        (self.kernel_feature_bytes.min(area) >= MM_CID_END).then_some(self.libc_offset?)
    }
}

/// Finds out, on the first call, what this process can use; later calls return the same answer.
///
/// The environment variable `SUBMETER_RSEQ=off`, read on that first call, and
/// `--cfg submeter_portable` rule the sequences out, as do systems other than Linux. Kernels that
/// may [lose a restart](crate::kernel), or have no barrier for sequences, are waited for by
/// [visits](Barrier::Visits); `SUBMETER_RSEQ=visits` waits that way on every kernel.
/// `SUBMETER_RSEQ=trust` relies on the kernel's barrier alone: if it loses a restart then, a flush
/// misses an update, and a reference count may release an object that is still held.
///
/// The first call takes about a millisecond, on a busy machine tens of milliseconds, and eight
/// seconds at most: it starts threads for the self-test. It also allocates, so it must not be made
/// in a signal handler; later calls may.
///
/// A call from *inside* the first one (an allocator that counts, a thread of the self-test) cannot
/// wait for it. It gets a provisional answer: [`Backend::LockedByThread`], with an empty reason.
#[inline]
pub fn probe() -> &'static Probe {
    decided().unwrap_or_else(wait_for_decision)
}

#[cold]
#[inline(never)]
fn wait_for_decision() -> &'static Probe {
    let asked = Instant::now();
    loop {
        if let Some(decided) = decided() {
            return decided;
        }
        // Acquire, also on failure: pairs with the Release in `publish`, which ends the claim after
        // it has published.
        let claim = DECIDER.compare_exchange(0, identity(), Ordering::Acquire, Ordering::Acquire);
        match claim {
            // Another thread may have decided between the check above and the claim.
            Ok(_) => return publish(decided().is_none().then(os::probe::decide)),
            Err(decider) if decider == identity() || thread::is_ours() => {
                return &PROVISIONAL;
            }
            // Forked while another thread decided, which does not exist in this process: take its
            // place.
            Err(decider) if decider >> 32 != identity() >> 32 => {
                // Relaxed: nothing is handed over; the exchange above is tried again.
                let _ = DECIDER.compare_exchange(decider, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            Err(_) if asked.elapsed() > PATIENCE => return &PROVISIONAL,
            // Not a futex: this wait happens once per process, for a millisecond.
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// How long a call waits for another thread's decision: many times what the self-test may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The answer, null until there is one. No `OnceLock`: its waiters would never wake in a forked
/// child, whose deciding thread is gone, and in a call from inside the decision.
static DECIDED: AtomicPtr<Probe> = AtomicPtr::new(std::ptr::null_mut());

/// The process and thread that are deciding, 0 if none is.
static DECIDER: AtomicU64 = AtomicU64::new(0);

static PROVISIONAL: Probe = Probe::without(String::new());

/// The answer, if there is one.
#[inline]
pub(crate) fn decided() -> Option<&'static Probe> {
    // Acquire: pairs with the Release in `publish`, so that the answer's contents are seen.
    let decided = DECIDED.load(Ordering::Acquire);
    // SAFETY: 1. Null, or the address of a probe: `publish` leaks the box. 2. It is never written
    // again: `publish` gives it away.
    unsafe { decided.as_ref() }
}

/// Makes `new` the answer, if it is one, and ends the claim.
fn publish(new: Option<Probe>) -> &'static Probe {
    if let Some(probe) = new {
        // Release: pairs with the Acquire in `decided`.
        DECIDED.store(Box::leak(Box::new(probe)), Ordering::Release);
    }
    // Release: pairs with the Acquire in `wait_for_decision`; a claimant after this finds the
    // answer published.
    DECIDER.store(0, Ordering::Release);
    decided().unwrap_or(&PROVISIONAL)
}

/// Returns the process and thread numbers as one number, never 0.
fn identity() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(thread::number())
}

impl Probe {
    /// Returns the answer for locked adds by thread, with the reason.
    pub(crate) const fn without(reason: String) -> Probe {
        Probe {
            backend: Backend::LockedByThread,
            reason,
            cpus: None,
            libc_area_bytes: None,
            kernel_feature_bytes: 0,
            membarrier: Err(0),
            self_test: SelfTest::NotRun,
            barrier: Barrier::Membarrier,
            libc_offset: None,
            rseq: None,
        }
    }
}
