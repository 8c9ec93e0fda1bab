//! Repeats a look at what other threads do until it has come upon what its test is named for.

use std::time::{Duration, Instant};

/// Calls `look` so many times, and then for as long as it has never returned true. A test of things
/// that happen side by side passes otherwise when one of them was over before the other began.
///
/// # Panics
/// After a minute.
#[track_caller]
pub(crate) fn until_met(times: u32, mut look: impl FnMut() -> bool) {
    let (begun, mut met) = (Instant::now(), false);
    for n in 0_u32.. {
        if n >= times && met {
            return;
        }
        met |= look();
        if n >= times {
            assert!(begun.elapsed() < Duration::from_secs(60), "what this is about never happened");
            std::thread::yield_now();
        }
    }
}
