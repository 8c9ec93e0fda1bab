//! Bursts of one tenant, on connections of its own.

use std::time::{Duration, Instant};

/// A tenant that sometimes sends much more than its share, so that the others feel it.
///
/// It has its own connections: on shared ones a burst would only take turns from the others inside
/// the client, where no server could help them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Index into the plan's tenants.
    pub tenant: usize,
    /// Connections in addition to those of the plan.
    pub connections: usize,
    /// The time from the start of one burst to that of the next.
    pub every: Duration,
    /// How long each burst lasts, at the end of that time: a load begins quietly.
    pub lasts: Duration,
}

impl Burst {
    /// Returns when requests may next be sent: `now` during a burst.
    pub(crate) fn next(&self, started: Instant, now: Instant) -> Instant {
        let quiet = self.every.saturating_sub(self.lasts);
        let passed =
            now.saturating_duration_since(started).as_nanos() % self.every.as_nanos().max(1);
        // It fits: it is less than `every`.
        let passed = Duration::from_nanos(passed as u64);
        now + quiet.saturating_sub(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_quiet_first_and_then_a_burst() {
        let ms = Duration::from_millis;
        let burst = Burst { tenant: 0, connections: 1, every: ms(10_000), lasts: ms(4_000) };
        let started = Instant::now();
        let wait = |at: u64| burst.next(started, started + ms(at)) - (started + ms(at));
        assert_eq!(wait(0), ms(6_000));
        assert_eq!(wait(5_999), ms(1));
        assert_eq!(wait(6_000), ms(0), "the burst begins");
        assert_eq!(wait(9_999), ms(0));
        assert_eq!(wait(10_000), ms(6_000), "and ends with the period");
        assert_eq!(wait(26_000), ms(0), "each period has one");
    }
}
