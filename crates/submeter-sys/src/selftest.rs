//! The start-up test: does this kernel abort a sequence when it must?
//!
//! Two promises are tested, because kernels have broken each: that a thread which is preempted inside a
//! sequence never commits it, although nobody migrated (arm64, 6.19); and that `membarrier` returns
//! only when no sequence that was running still can commit. Sandboxes that fake rseq are caught
//! the same way. The test takes about a millisecond, once a process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::arch::{self, Spin, SpinShared};
use crate::{cpu, membarrier};

/// How long either test may take before its result counts as unknown.
const PATIENCE: Duration = Duration::from_millis(250);
/// Rounds of one section: some 100 µs with `pause`, long enough to be preempted in.
const SPINS: u32 = 4_000;
/// Aborts to see before a promise counts as kept.
const ABORTS_WANTED: u32 = 3;
/// How often the preempting thread wakes.
const NUDGE: Duration = Duration::from_micros(20);

/// What the test found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Both promises were kept each time.
    Passed,
    /// A sequence committed although its thread had been preempted in it.
    CommittedAfterPreemption,
    /// A sequence committed although a barrier had returned while it ran.
    CommittedAfterBarrier,
    /// In the time allowed no sequence was interrupted, so nothing is known.
    Inconclusive,
    /// Not run: there was no need or no way.
    NotRun,
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SelfTest::Passed => "passed",
            SelfTest::CommittedAfterPreemption => {
                "failed: a sequence committed after a preemption on the same CPU"
            }
            SelfTest::CommittedAfterBarrier => "failed: a sequence committed after membarrier",
            SelfTest::Inconclusive => "inconclusive: no sequence was interrupted in time",
            SelfTest::NotRun => "not run",
        })
    }
}

/// Runs both tests on threads of their own, so that the caller's affinity stays as it is.
pub(crate) fn run(offset: isize, prepare: fn() -> bool) -> SelfTest {
    let Ok(allowed) = cpu::affinity() else {
        return SelfTest::Inconclusive;
    };
    let here = cpu::current().filter(|cpu| allowed.contains(cpu));
    let Some(target) = here.or(allowed.first().copied()) else {
        return SelfTest::Inconclusive;
    };
    match preemption(offset, target, prepare) {
        SelfTest::Passed => barrier(offset, prepare),
        other => other,
    }
}

/// Both threads on one CPU: when the flag changes during a section, the section's thread was
/// preempted in it, and the section must not commit.
fn preemption(offset: isize, target: usize, prepare: fn() -> bool) -> SelfTest {
    let shared = SpinShared::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            if cpu::set_affinity(&[target]).is_err() {
                return;
            }
            // Relaxed: `stop` and `flag` are plain signals; all that matters is that they arrive.
            while !stop.load(Ordering::Relaxed) {
                shared.flag.fetch_add(1, Ordering::Relaxed);
                thread::sleep(NUDGE);
            }
        });
        let section = scope.spawn(|| {
            // Without the pinning a commit would prove nothing.
            if cpu::set_affinity(&[target]).is_err() || !prepare() {
                return SelfTest::Inconclusive;
            }
            repeat(offset, &shared, SelfTest::CommittedAfterPreemption)
        });
        let result = section.join().unwrap_or(SelfTest::Inconclusive);
        // Relaxed: see above.
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// The watcher waits until the section runs, issues the barrier, and only then changes the flag: a
/// section that sees the change outlived the barrier, and must not commit.
fn barrier(offset: isize, prepare: fn() -> bool) -> SelfTest {
    let shared = SpinShared::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: the barrier orders; the signals need only arrive.
            while !stop.load(Ordering::Relaxed) {
                if shared.entered.swap(0, Ordering::Relaxed) == 0 {
                    thread::yield_now();
                    continue;
                }
                if membarrier::rseq_barrier().is_err() {
                    return;
                }
                // Relaxed: the barrier has ordered it.
                shared.flag.fetch_add(1, Ordering::Relaxed);
            }
        });
        let section = scope.spawn(|| {
            if !prepare() {
                return SelfTest::Inconclusive;
            }
            repeat(offset, &shared, SelfTest::CommittedAfterBarrier)
        });
        let result = section.join().unwrap_or(SelfTest::Inconclusive);
        // Relaxed: see above.
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Runs sections until enough were aborted while the flag changed, one committed, or time is up.
fn repeat(offset: isize, shared: &SpinShared, committed: SelfTest) -> SelfTest {
    let start = Instant::now();
    let mut aborts = 0;
    while start.elapsed() < PATIENCE {
        // Relaxed: only whether it changed is asked, and by then long ago.
        let before = shared.flag.load(Ordering::Relaxed);
        match arch::spin_once(offset, shared, SPINS) {
            Spin::Committed => return committed,
            Spin::Timeout => {}
            Spin::Aborted => {
                // An abort counts when it was ours: the other thread ran meanwhile, or is about to.
                thread::yield_now();
                // Relaxed: as above.
                aborts += u32::from(shared.flag.load(Ordering::Relaxed) != before);
                if aborts == ABORTS_WANTED {
                    return SelfTest::Passed;
                }
            }
        }
    }
    SelfTest::Inconclusive
}
