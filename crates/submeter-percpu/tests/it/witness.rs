//! Whether a test has come upon what it is named for: one of things that happen side by side passes
//! otherwise when one of them was over before the other began.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For so long a test goes on at most until it has met what it is about.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test is named for, and whether any of its threads has met that.
pub(crate) struct Witness {
    begun: Instant,
    met: AtomicBool,
}

impl Witness {
    /// One that Miri need not meet, whose steps are few.
    pub(crate) fn new() -> Witness {
        let witness = Witness::everywhere();
        witness.met(cfg!(miri));
        witness
    }

    pub(crate) fn everywhere() -> Witness {
        Witness { begun: Instant::now(), met: AtomicBool::new(false) }
    }

    pub(crate) fn met(&self, met: bool) {
        // Relaxed, here and below: a flag alone. Not stored again and again: its line stays shared.
        if met && !self.met.load(Ordering::Relaxed) {
            self.met.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a thread goes on after `done` steps: at least `steps`, and then until something was
    /// met, for as long as there is patience.
    pub(crate) fn goes_on(&self, done: u64, steps: u64) -> bool {
        let waits = || !self.met.load(Ordering::Relaxed) && self.begun.elapsed() < PATIENCE;
        done < steps || waits()
    }

    #[track_caller]
    pub(crate) fn assert_met(&self) {
        assert!(self.met.load(Ordering::Relaxed), "what this is about never happened");
    }
}
