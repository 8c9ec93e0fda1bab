//! How much time has passed, by the system's clock or by a test's.

use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use crate::rates::TestClock;

/// Not behind a lock, which a fork could leave locked in the child.
static START: OnceBox<Instant> = OnceBox::new();

/// The time since the process first made one of these, which a fork does not change. Takes no lock.
///
/// Values that read the time make one in their constructors, because a signal handler runs no
/// constructor: a handler that interrupted a lazy first read would deadlock with its own thread.
#[derive(Clone, Copy, Debug)]
pub struct Uptime(());

impl Uptime {
    /// Starts the count, if this is the first one.
    #[must_use]
    pub fn begin() -> Uptime {
        START.get_or_init(|| Box::new(Instant::now()));
        Uptime(())
    }

    /// Returns the time since the start.
    #[inline]
    #[must_use]
    pub fn now(self) -> Duration {
        START.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Returns the same in nanoseconds, which wrap around after centuries.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        self.now().as_nanos() as u64
    }
}

/// The clock of a value whose time a test may control.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's.
    Uptime(Uptime),
    /// A test's.
    Test(TestClock),
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::Uptime(Uptime::begin())
    }
}

impl From<&TestClock> for Clock {
    fn from(clock: &TestClock) -> Clock {
        Clock::Test(clock.clone())
    }
}

impl Clock {
    /// Returns how much time has passed since the clock's start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        match self {
            Clock::Uptime(uptime) => uptime.now(),
            Clock::Test(clock) => clock.elapsed(),
        }
    }

    /// Returns the same in nanoseconds, which wrap around after centuries.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now().as_nanos() as u64
    }

    /// Returns the moment at which so much had passed. Those of a test's clock lie as far apart as
    /// the test made them.
    #[must_use]
    pub fn instant(&self, passed: Duration) -> Instant {
        *START.get_or_init(|| Box::new(Instant::now())) + passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments of a flush are between those at which it was asked for and had returned.
    #[test]
    fn a_moment_is_when_the_system_says() {
        let clock = Clock::default();
        let before = Instant::now();
        let moment = clock.instant(clock.now());
        assert!((before..=Instant::now()).contains(&moment));
    }

    /// They lie as far apart as the test made them.
    #[test]
    fn a_test_makes_the_moments_of_its_clock() {
        let test = TestClock::new();
        let clock = Clock::from(&test);
        let before = clock.instant(clock.now());
        test.advance(Duration::from_secs(5));
        assert_eq!(clock.instant(clock.now()) - before, Duration::from_secs(5));
        assert_eq!(clock.now_ns(), 5_000_000_000);
    }
}
