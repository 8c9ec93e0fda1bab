//! The start-up test: does a perf page show each time that its thread was switched out?
//!
//! Two ways of losing the CPU are tried, because kernels tell them apart: waiting, and being
//! preempted. In both, the thread returns to the CPU that it left, which is the case in which a
//! kernel may see nothing to report.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::super::thread::{SignalsBlocked, switches};
use super::Watch;
use crate::clock::Source;
use crate::cpu;
use crate::os::thread;

/// How long to wait for preemptions before the result is inconclusive.
const PATIENCE: Duration = Duration::from_millis(250);
/// Switches of each kind that must be noticed.
const WANTED: u32 = 4;
/// How long a wait lasts, and how often the preempting thread wakes.
const NUDGE: Duration = Duration::from_micros(20);

/// The result of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Each switch was noticed.
    Passed,
    /// A thread that waited looked as if it had not.
    MissedWait,
    /// A thread that was preempted looked as if it had not been.
    MissedPreemption,
    /// No thread waited or could be preempted (no time, no threads, no affinity).
    Inconclusive,
    /// There is no page, and why.
    Refused(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "noticed each switch of its self-test",
            Verdict::MissedWait => "missed a wait in its self-test",
            Verdict::MissedPreemption => "missed a preemption in its self-test",
            Verdict::Inconclusive => "could not be tested: no thread was switched out in time",
            Verdict::Refused(why) => why,
        })
    }
}

/// Tries a page on threads of its own, so that the caller's affinity stays as it is.
pub(super) fn run() -> Verdict {
    let Ok(allowed) = cpu::affinity() else {
        return Verdict::Inconclusive;
    };
    let here = cpu::current().filter(|cpu| allowed.contains(cpu));
    let Some(target) = here.or(allowed.first().copied()) else {
        return Verdict::Inconclusive;
    };
    // The threads inherit it, so none of the program's handlers runs on a thread that it does not
    // know.
    let _blocked = SignalsBlocked::new();
    let (turns, stop, result) = (AtomicU32::new(0), AtomicBool::new(false), OnceLock::new());
    let preempt = || {
        // Relaxed: plain signals between threads of one CPU; all that matters is that they arrive.
        while cpu::set_affinity(&[target]).is_ok() && !stop.load(Ordering::Relaxed) {
            turns.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(NUDGE);
        }
    };
    let look = || {
        // Without the pinning, another thread's turn would prove nothing.
        if cpu::set_affinity(&[target]).is_ok() {
            let _ = result.set(watch(&turns));
        }
    };
    thread::beside(&preempt, || {
        thread::beside(&look, || ());
        // Relaxed: a plain signal; `beside` joins the thread.
        stop.store(true, Ordering::Relaxed);
    });
    result.into_inner().unwrap_or(Verdict::Inconclusive)
}

fn watch(turns: &AtomicU32) -> Verdict {
    let watch = match Watch::new(Source::PerfPage) {
        Ok(watch) => watch,
        Err(error) => return Verdict::Refused(super::refusal(&error)),
    };
    let start = Instant::now();
    let mut noticed = 0;
    while noticed < WANTED {
        let (armed, before) = (watch.arm(), switches());
        std::thread::sleep(NUDGE);
        // A timer that fires before the thread has left its CPU ends the wait without a switch, as
        // where a hypervisor takes the CPU away in between.
        let has_waited = before.is_none() || switches() != before;
        if has_waited && watch.holds(armed) {
            return Verdict::MissedWait;
        }
        noticed += u32::from(has_waited);
        if !has_waited && start.elapsed() > PATIENCE {
            return Verdict::Inconclusive;
        }
    }
    let start = Instant::now();
    let mut noticed = 0;
    while noticed < WANTED {
        let armed = watch.arm();
        // Relaxed: after the arming, and on the CPU of the thread that counts turns. A turn that
        // passes from here on was that thread's, and therefore not ours.
        let turn = turns.load(Ordering::Relaxed);
        while turns.load(Ordering::Relaxed) == turn {
            if start.elapsed() > PATIENCE {
                return Verdict::Inconclusive;
            }
            std::hint::spin_loop();
        }
        if watch.holds(armed) {
            return Verdict::MissedPreemption;
        }
        noticed += 1;
    }
    Verdict::Passed
}
