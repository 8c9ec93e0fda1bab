//! The start-up test: does this kernel abort a sequence when it must?
//!
//! Two promises are tested, because kernels have broken each: that a thread preempted inside a
//! sequence never commits it, even if it was not migrated (arm64, 6.19); and that `membarrier`
//! returns only when no sequence that was running can still commit. Sandboxes that fake rseq are
//! caught the same way. Where visits replace `membarrier`, visits are tested: some sandboxes accept
//! any affinity and apply none. The test takes about a millisecond, once per process.
//!
//! It must also decide on a busy machine: a process without a verdict would run on a lower backend
//! for its whole life. On such a machine a thread runs for a few milliseconds, then waits until all
//! others have had their turns. Therefore no thread here gives up its turn while it could decide;
//! the two threads of the second test, which must run at the same time, sleep and wake together,
//! because the scheduler soon runs a thread that has slept; and the test continues for seconds
//! until it has seen what it needs.
//!
//! Every thread that shares its CPU gets preempted. A barrier meets a running section only if two
//! threads of the process run at the same moment, and a process with a hundredth of each CPU may
//! not see that in seconds. The second test can therefore refute a kernel but need not confirm it:
//! before either test begins, the kernel's release or the operator has vouched for barriers (see
//! [`crate::kernel`]), and the race for which releases are listed is too rare for a test to show.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::thread::{self, SignalsBlocked, share_the_cpu, switches};
use crate::arch::{self, SpinShared};
use crate::barrier::Barrier;
use crate::probe::SelfTest;
use crate::{cpu, membarrier};

/// How long either test may take before its result counts as unknown.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long either test looks for more than one abort.
const THOROUGH: Duration = Duration::from_millis(50);
/// Number of aborts after which a promise counts as kept, if there is time to be thorough. A single
/// one decides: a kernel that breaks the promise commits the first section that is let through.
const ABORTS_WANTED: u32 = 3;
/// Rounds of one section: some 100 µs with `pause`, long enough to be preempted in.
const SPINS: u32 = 4_000;
/// How often the preempting thread wakes.
const NUDGE: Duration = Duration::from_micros(20);
/// How long the threads that must meet look for each other, and how often they meet.
const MEETING: Duration = Duration::from_millis(4);
const MEETINGS_APART: Duration = Duration::from_millis(10);

/// Runs both tests on threads of their own, so that the caller's affinity stays as it is.
pub(crate) fn run(offset: isize, prepare: fn() -> bool, by: Barrier) -> SelfTest {
    let Ok(allowed) = cpu::affinity() else {
        return SelfTest::Inconclusive;
    };
    let here = cpu::current().filter(|cpu| allowed.contains(cpu));
    let Some(target) = here.or(allowed.first().copied()) else {
        return SelfTest::Inconclusive;
    };
    // The threads inherit it, so none of the program's handlers runs on a thread that it does not
    // know.
    let _blocked = SignalsBlocked::new();
    match preemption(offset, target, prepare) {
        SelfTest::Passed => {
            let other = allowed.iter().copied().find(|&cpu| cpu != target);
            match by {
                Barrier::Membarrier => barrier(offset, target, other, prepare, PATIENCE),
                Barrier::Visits => visits(offset, target, other.unwrap_or(target), prepare),
            }
        }
        other => other,
    }
}

/// Tests preemption, with both threads on one CPU: when the watcher runs, the section's thread does
/// not. A section that finds itself let through was preempted, and must not commit.
fn preemption(offset: isize, target: usize, prepare: fn() -> bool) -> SelfTest {
    let watch = |shared: &SpinShared, stop: &AtomicBool| {
        if cpu::set_affinity(&[target]).is_err() {
            return;
        }
        // Relaxed: plain signals between threads of one CPU; all that matters is that they arrive.
        while !stop.load(Ordering::Relaxed) {
            shared.flag.store(shared.entered.load(Ordering::Relaxed), Ordering::Relaxed);
            std::thread::sleep(NUDGE);
        }
    };
    // Without the pinning a commit would prove nothing.
    let pinned = || cpu::set_affinity(&[target]).is_ok() && prepare();
    let trial = Trial {
        committed: SelfTest::CommittedAfterPreemption,
        unseen: SelfTest::Inconclusive,
        patience: PATIENCE,
    };
    in_threads(offset, None, watch, pinned, trial)
}

/// Tests visits. The watcher waits until a section runs, visits its CPU, and lets it through there
/// before it goes back. Then every CPU is visited once, as in each round: if a real-time thread
/// makes one unreachable, every kill would wait for it.
fn visits(offset: isize, target: usize, other: usize, prepare: fn() -> bool) -> SelfTest {
    let watch = |shared: &SpinShared, stop: &AtomicBool| {
        let mut last = 0;
        // Relaxed: the visit provides the ordering; the signals only need to arrive.
        while cpu::set_affinity(&[other]).is_ok() && !stop.load(Ordering::Relaxed) {
            let ticket = shared.entered.load(Ordering::Relaxed);
            if ticket == last || cpu::set_affinity(&[target]).is_err() {
                std::thread::sleep(NUDGE);
                continue;
            }
            // Relaxed: after a system call.
            shared.flag.store(ticket, Ordering::Relaxed);
            last = ticket;
        }
    };
    let pinned = || cpu::set_affinity(&[target]).is_ok() && prepare();
    let trial = Trial {
        committed: SelfTest::CommittedAfterBarrier,
        unseen: SelfTest::Inconclusive,
        patience: PATIENCE,
    };
    match in_threads(offset, None, watch, pinned, trial) {
        SelfTest::Passed => {
            let visited = super::visits::wait_for_round(Some(ROUND)).is_ok();
            super::visits::end();
            if visited { SelfTest::Passed } else { SelfTest::Inconclusive }
        }
        found => found,
    }
}

/// How long a round may take: longer than on a busy machine with many CPUs, but not so long that a
/// real-time thread that leaves others their share of each second would pass, because every kill
/// would take as long.
const ROUND: Duration = Duration::from_millis(900);

/// Tests barriers. The watcher waits until a section runs, issues the barrier, and only then lets
/// that section, and no other, through: a section that notices has outlived the barrier, and must
/// not commit.
///
/// With two CPUs each thread has its own, so that the scheduler does not queue one behind the
/// other, and an abort counts only if its thread kept the CPU throughout. With one CPU no barrier
/// meets a running section: the section is preempted instead, and barriers remain untested. So they
/// do if the two never ran at the same time for `patience`.
fn barrier(
    offset: isize,
    target: usize,
    other: Option<usize>,
    prepare: fn() -> bool,
    patience: Duration,
) -> SelfTest {
    let start = Instant::now();
    let refused = AtomicBool::new(false);
    let watch = |shared: &SpinShared, stop: &AtomicBool| {
        // If it is refused, chance decides where the threads run.
        let _ = cpu::set_affinity(&[other.unwrap_or(target)]);
        let mut meetings = Meetings::since(start);
        let mut last = 0;
        // Relaxed: the barrier provides the ordering; the signals only need to arrive.
        while !stop.load(Ordering::Relaxed) {
            let ticket = shared.entered.load(Ordering::Relaxed);
            if ticket == last {
                match other {
                    Some(_) => meetings.attend(),
                    None => std::thread::sleep(NUDGE),
                }
                continue;
            }
            if membarrier::rseq_barrier().is_err() {
                // Relaxed: read after the thread was joined.
                refused.store(true, Ordering::Relaxed);
                return;
            }
            // Relaxed: after a system call.
            shared.flag.store(ticket, Ordering::Relaxed);
            last = ticket;
        }
    };
    let pinned = || {
        let _ = cpu::set_affinity(&[target]);
        prepare()
    };
    let meetings = other.map(|_| Meetings::since(start));
    let trial = Trial {
        committed: SelfTest::CommittedAfterBarrier,
        unseen: SelfTest::PassedWithoutBarrier,
        patience,
    };
    let found = in_threads(offset, meetings, watch, pinned, trial);
    // Relaxed: after the watcher was joined. No release vouches for a feature that is offered and
    // then refused.
    if refused.load(Ordering::Relaxed) {
        return SelfTest::Inconclusive;
    }
    match found {
        // A sequence aborted with only one CPU was preempted.
        SelfTest::Passed if other.is_none() => SelfTest::PassedWithoutBarrier,
        found => found,
    }
}

/// What the outcomes of a trial of sections mean, and the time it may take.
#[derive(Clone, Copy)]
struct Trial {
    /// The verdict if a section committed.
    committed: SelfTest,
    /// The verdict if no section that was let through was seen to end within `patience`.
    unseen: SelfTest,
    patience: Duration,
}

/// The moments at which two threads on two CPUs look for each other.
#[derive(Clone, Copy)]
struct Meetings {
    start: Instant,
    /// When this thread arrived. Not when the meeting began: another thread may keep the CPU for
    /// some milliseconds, and a thread that arrives late would leave at once.
    came: Instant,
}

impl Meetings {
    fn since(start: Instant) -> Meetings {
        Meetings { start, came: Instant::now() }
    }

    /// Returns at once while a meeting lasts, otherwise sleeps until the next one.
    fn attend(&mut self) {
        if self.came.elapsed() < MEETING {
            std::hint::spin_loop();
            return;
        }
        let since = self.start.elapsed().as_micros() % MEETINGS_APART.as_micros();
        std::thread::sleep(MEETINGS_APART - Duration::from_micros(since as u64));
        self.came = Instant::now();
    }
}

/// Runs `watch` on one thread and sections on another, which calls `prepare` first.
fn in_threads(
    offset: isize,
    meetings: Option<Meetings>,
    watch: impl Fn(&SpinShared, &AtomicBool) + Sync,
    prepare: impl Fn() -> bool + Sync,
    trial: Trial,
) -> SelfTest {
    let shared = SpinShared::default();
    let stop = AtomicBool::new(false);
    let result = OnceLock::new();
    let section = || {
        share_the_cpu();
        if prepare() {
            let _ = result.set(repeat(offset, meetings, &shared, trial));
        }
    };
    let watch = || {
        share_the_cpu();
        watch(&shared, &stop);
    };
    // If no thread can be created (because of a limit), nothing is known; only speed is at stake.
    thread::beside(&watch, || {
        thread::beside(&section, || ());
        // Relaxed: a plain signal; `beside` joins the watcher.
        stop.store(true, Ordering::Relaxed);
    });
    result.into_inner().unwrap_or(SelfTest::Inconclusive)
}

/// Runs sections until enough of those let through were aborted, one committed, or time is up.
fn repeat(
    offset: isize,
    mut meetings: Option<Meetings>,
    shared: &SpinShared,
    trial: Trial,
) -> SelfTest {
    let start = Instant::now();
    let mut aborts = 0;
    for ticket in 1.. {
        // If the two are to meet, an abort by preemption would say nothing about the barrier.
        let before = meetings.and_then(|_| switches());
        let stayed = || before.is_none_or(|before| switches() == Some(before));
        match spin_once(offset, shared, ticket, SPINS) {
            Spin::Committed => return trial.committed,
            Spin::Aborted if let_through(shared, ticket) && stayed() => aborts += 1,
            Spin::Aborted | Spin::Timeout => {}
        }
        let wanted = if start.elapsed() < THOROUGH { ABORTS_WANTED } else { 1 };
        if aborts >= wanted {
            return SelfTest::Passed;
        }
        if start.elapsed() > trial.patience {
            break;
        }
        if let Some(meetings) = &mut meetings {
            meetings.attend();
        }
    }
    trial.unseen
}

/// How the self-test's section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spin {
    /// It was let through and committed.
    Committed,
    /// The kernel aborted it.
    Aborted,
    /// It was not let through within the spins allowed.
    Timeout,
}

/// Runs the self-test's section once. `ticket` is not 0 and differs from run to run.
fn spin_once(offset: isize, shared: &SpinShared, ticket: u32, spins: u32) -> Spin {
    let aborted = arch::spin(offset, shared, ticket, spins);
    // Relaxed: written by this thread's own sections only.
    let committed = shared.result.load(Ordering::Relaxed) == ticket;
    match (aborted, committed) {
        (_, true) => Spin::Committed,
        (true, false) => Spin::Aborted,
        (false, false) => Spin::Timeout,
    }
}

/// Returns whether the watcher has acted on the section of `ticket`, or does so within some 25 µs.
/// An abort counts only then: any other interrupt would prove nothing about what is being tested.
fn let_through(shared: &SpinShared, ticket: u32) -> bool {
    let start = Instant::now();
    loop {
        // Relaxed: the only question is whether it arrived.
        if shared.flag.load(Ordering::Relaxed) == ticket {
            return true;
        }
        // Not `yield_now`: on a busy machine that gives up milliseconds, in which the watcher looks
        // for a section in vain.
        if start.elapsed() > Duration::from_micros(25) {
            return false;
        }
        std::hint::spin_loop();
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::super::own_registration;
    use super::*;
    use crate::probe::{Backend, probe};

    /// Returns an area that no kernel reads: nothing aborts there.
    fn unregistered() -> isize {
        arch::own_area_offset()
    }

    /// A kernel that does not abort after a preemption is found.
    #[test]
    fn a_kernel_that_does_not_abort_is_found() {
        assert_eq!(
            run(unregistered(), || true, Barrier::Membarrier),
            SelfTest::CommittedAfterPreemption
        );
    }

    #[test]
    fn a_barrier_that_restarts_nothing_is_found() {
        if membarrier::register_rseq().is_err() {
            eprintln!("skipped: membarrier cannot restart sequences here (Linux 5.10 can)");
            return;
        }
        let allowed = cpu::affinity().expect("readable");
        let other = allowed.get(1).copied();
        let found = barrier(unregistered(), allowed[0], other, || true, PATIENCE);
        assert_eq!(found, SelfTest::CommittedAfterBarrier);
    }

    #[test]
    fn a_visit_that_restarts_nothing_is_found() {
        let allowed = cpu::affinity().expect("readable");
        let other = allowed.get(1).copied().unwrap_or(allowed[0]);
        let found = visits(unregistered(), allowed[0], other, || true);
        assert_eq!(found, SelfTest::CommittedAfterBarrier);
    }

    #[test]
    fn a_program_of_fixed_priority_gets_a_verdict() {
        let Some(offset) = probe().libc_offset.filter(|_| probe().rseq().is_some()) else {
            eprintln!("skipped: no sequences of libc's here: {}", probe().reason);
            return;
        };
        let verdict = |policy: libc::c_int, by: Barrier| {
            // SAFETY: 1. Zeroes are a valid parameter: plain data.
            let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
            parameter.sched_priority = libc::c_int::from(policy == libc::SCHED_FIFO);
            // SAFETY: 1. The parameter is live. 2. It only affects this test's thread.
            let set = unsafe {
                libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter)
            };
            (set == 0).then(|| run(offset, || true, by))
        };
        let both = [libc::SCHED_BATCH, libc::SCHED_FIFO];
        let barriers = [Barrier::Visits, probe().barrier];
        for (policy, by) in both.into_iter().flat_map(|policy| barriers.map(|by| (policy, by))) {
            // A separate thread, because its policy is not restored.
            let found = std::thread::scope(|scope| scope.spawn(|| verdict(policy, by)).join());
            match found.expect("no panic") {
                Some(found) => assert!(found.passed(), "policy {policy} {by:?}: {found:?}"),
                None => eprintln!("skipped: policy {policy} is not allowed here (root may)"),
            }
        }
    }

    /// If two threads never run at once, the kernel's release decides about barriers.
    #[test]
    fn threads_that_never_meet_trust_the_release() {
        let allowed = cpu::affinity().expect("readable");
        if probe().rseq().is_none() {
            eprintln!("skipped: no sequences here: {}", probe().reason);
            return;
        }
        let offset = probe().libc_offset.unwrap_or_else(unregistered);
        let prepare =
            || probe().backend != Backend::OwnRseq || own_registration::register().is_ok();
        // Time for one section, while more than one abort is wanted of so short a trial.
        let never = Duration::ZERO;
        let found = barrier(offset, allowed[0], allowed.get(1).copied(), prepare, never);
        assert_eq!(found, SelfTest::PassedWithoutBarrier);
    }
}
