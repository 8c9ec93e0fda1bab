//! Witnesses that a test has reached the situation that it is named for: otherwise a test of
//! concurrent events passes when one was over before the other began.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time for which a test continues until it reaches its situation.
const PATIENCE: Duration = Duration::from_secs(60);

/// The situation that a test is named for, and whether any of its threads has reached it.
pub(crate) struct Witness {
    begun: Instant,
    met: AtomicBool,
}

impl Witness {
    /// Creates a witness that need not be met under Miri, which makes few steps.
    pub(crate) fn new() -> Witness {
        let witness = Witness::everywhere();
        witness.met(cfg!(miri));
        witness
    }

    pub(crate) fn everywhere() -> Witness {
        Witness { begun: Instant::now(), met: AtomicBool::new(false) }
    }

    pub(crate) fn met(&self, met: bool) {
        // Relaxed, here and below: it is only a flag. Not stored repeatedly, so that its line stays
        // shared.
        if met && !self.met.load(Ordering::Relaxed) {
            self.met.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a thread continues after `done` steps: for at least `steps`, and then until
    /// the situation was met or patience runs out.
    pub(crate) fn goes_on(&self, done: u64, steps: u64) -> bool {
        let waits = || !self.met.load(Ordering::Relaxed) && self.begun.elapsed() < PATIENCE;
        done < steps || waits()
    }

    #[track_caller]
    pub(crate) fn assert_met(&self) {
        assert!(self.met.load(Ordering::Relaxed), "what this is about never happened");
    }
}
