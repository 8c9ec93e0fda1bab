//! A clock that is cheap enough for every update.

use std::time::Duration;

/// A clock that reads the processor's time-stamp counter where that is steady, and asks the system
/// otherwise.
#[derive(Clone, Debug)]
pub(super) struct Clock(quanta::Clock);

impl Clock {
    /// Returns the clock; the first call calibrates it, which takes some milliseconds.
    pub(super) fn new() -> Clock {
        Clock(quanta::Clock::new())
    }

    /// Returns the current time in ticks.
    #[inline]
    pub(super) fn ticks(&self) -> u64 {
        self.0.raw()
    }

    /// Returns the nanoseconds from one time to another.
    #[inline]
    pub(super) fn between_ns(&self, from: u64, until: u64) -> u64 {
        self.0.delta_as_nanos(from, until)
    }

    /// Returns the nanoseconds since a time.
    #[inline]
    pub(super) fn since_ns(&self, from: u64) -> u64 {
        self.between_ns(from, self.ticks())
    }

    /// Spins until `duration` after `from`.
    pub(super) fn spin_until(&self, from: u64, duration: Duration) {
        while u128::from(self.since_ns(from)) < duration.as_nanos() {
            std::hint::spin_loop();
        }
    }
}
