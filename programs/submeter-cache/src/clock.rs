//! Time: one reading serves metering, expiry and the order of use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time stamp counter where it is dependable, and the system's clock elsewhere.
pub(crate) struct Clock {
    clock: quanta::Clock,
    start: u64,
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// Milliseconds on the store's scale, never 0; used for expiry.
    pub(crate) ms: u64,
    /// Microseconds on the same scale; used for the order of use.
    pub(crate) us: u64,
}

/// The start of the store's scale, so that 0 can mean never and 1 a time in the past.
const START_MS: u64 = 1000;

/// An expiry that precedes every moment.
const PAST_MS: u64 = 1;

/// Thirty days in seconds. Times up to this are relative to now; greater ones are relative to 1970.
const RELATIVE_MAX_S: i64 = 60 * 60 * 24 * 30;

impl Clock {
    pub(crate) fn new() -> Clock {
        let clock = quanta::Clock::new();
        Clock { start: clock.raw(), clock }
    }

    /// Reads the counter.
    #[inline]
    pub(crate) fn raw(&self) -> u64 {
        self.clock.raw()
    }

    /// Returns the time between two readings of the counter.
    #[inline]
    pub(crate) fn between_ns(&self, from: u64, to: u64) -> u64 {
        self.clock.delta_as_nanos(from, to)
    }

    pub(crate) fn tick(&self, raw: u64) -> Tick {
        let us = START_MS * 1000 + self.between_ns(self.start, raw) / 1000;
        Tick { ms: us / 1000, us }
    }

    pub(crate) fn now(&self) -> Tick {
        self.tick(self.raw())
    }

    pub(crate) fn uptime(&self) -> Duration {
        Duration::from_nanos(self.between_ns(self.start, self.raw()))
    }
}

impl Tick {
    /// Converts an expiry as clients write it into a moment; 0 means never.
    pub(crate) fn deadline_ms(self, exptime: i64) -> u64 {
        if exptime == 0 {
            return 0;
        }
        if exptime < 0 {
            return PAST_MS;
        }
        let millis = |seconds: i64| seconds.unsigned_abs().saturating_mul(1000);
        if exptime <= RELATIVE_MAX_S {
            return self.ms.saturating_add(millis(exptime));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        match millis(exptime).checked_sub(unix_ms) {
            Some(left) if left > 0 => self.ms.saturating_add(left),
            _ => PAST_MS,
        }
    }

    /// Returns the seconds left until `expires_ms`, rounded up: an item just set to 30 has 30 left.
    pub(crate) fn left_s(self, expires_ms: u64) -> u64 {
        expires_ms.saturating_sub(self.ms).div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_relative_absolute_or_over() {
        let now = Tick { ms: 5000, us: 5_000_000 };
        assert_eq!(now.deadline_ms(0), 0);
        assert_eq!(now.deadline_ms(-1), PAST_MS);
        assert_eq!(now.deadline_ms(i64::MIN), PAST_MS);
        assert_eq!(now.deadline_ms(10), 15_000);
        assert_eq!(now.left_s(15_000), 10);
        assert_eq!(now.deadline_ms(RELATIVE_MAX_S + 1), PAST_MS);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let in_an_hour = now.deadline_ms(i64::try_from(unix).expect("fits") + 3600);
        assert!((now.left_s(in_an_hour)).abs_diff(3600) <= 2);
        assert!(now.deadline_ms(i64::MAX) > 1 << 60);
    }
}
