//! Witnesses that a test has reached the situation that it is named for: otherwise a test of
//! concurrent events passes when one was over before the other began.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time for which a test continues until it reaches its situation.
const PATIENCE: Duration = Duration::from_secs(60);

/// The situation that a test is named for, and whether any of its threads has reached it.
pub(crate) struct Witness {
    begun: Instant,
    /// How long the thread that began it had waited for a CPU before.
    waited: Duration,
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
        let (begun, waited) = (Instant::now(), waited_for_a_cpu());
        Witness { begun, waited, met: AtomicBool::new(false) }
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

    /// Asserts that the situation was met.
    ///
    /// # Panics
    /// If it never came about, though this thread had a CPU for most of the time.
    /// Otherwise the others had none beside it, and the machine is too noisy for a verdict.
    #[track_caller]
    pub(crate) fn assert_met(&self) {
        if self.met.load(Ordering::Relaxed) {
            return;
        }
        let waited = waited_for_a_cpu().saturating_sub(self.waited);
        let elapsed = self.begun.elapsed();
        assert!(waited > elapsed / 3, "what this is about never happened");
        println!("too noisy: of {elapsed:.0?} this thread waited for a CPU for {waited:.0?}");
    }
}

/// Returns the time for which this thread was ready to run and did not; none where no kernel says,
/// as under Miri.
fn waited_for_a_cpu() -> Duration {
    if cfg!(miri) {
        return Duration::ZERO;
    }
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = said.split_whitespace().nth(1).and_then(|waited| waited.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}
