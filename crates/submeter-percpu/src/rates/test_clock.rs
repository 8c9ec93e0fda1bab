//! Time under the control of a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that stands still until it is advanced, for tests of time-dependent behaviour.
///
/// Its clones share one clock. It starts at 0.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_percpu::{Rate, TestClock, TokenBucket};
///
/// let clock = TestClock::new();
/// let bucket = TokenBucket::with_clock(&clock);
/// bucket.set_rate(Some(Rate::new(10, Duration::from_secs(1))))?;
/// let take = |n| TokenBucket::try_take([Some(&bucket)].into_iter(), n, drop).is_ok();
/// assert!(take(10) && !take(1));
/// clock.advance(Duration::from_millis(500));
/// assert!(take(5) && !take(1));
/// # Ok::<(), submeter_percpu::InvalidRateError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Creates a clock.
    #[must_use]
    pub fn new() -> TestClock {
        TestClock::default()
    }

    /// Advances the clock at once.
    pub fn advance(&self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the time publishes nothing but itself. If another thread reads the clock, the
        // way in which the test notifies that thread orders the two.
        self.0.fetch_add(by_ns, Ordering::Relaxed);
    }

    /// Returns how much time has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        // Relaxed: as in `advance`.
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
