//! Repeats an observation of other threads until it has met the situation that its test is named
//! for.

use crate::witness::Witness;

/// Calls `look` `times` times, and then until it has returned true at least once.
///
/// # Panics
/// After a minute.
#[track_caller]
pub(crate) fn until_met(times: u32, mut look: impl FnMut() -> bool) {
    let witness = Witness::everywhere();
    for n in (0..).take_while(|&n| witness.goes_on(n, times.into())) {
        witness.met(look());
        // Outside Miri it does not yield: on one CPU, a call that begins right after a yield is
        // never preempted, and meets no other thread.
        if cfg!(miri) && n >= times.into() {
            std::thread::yield_now();
        }
    }
    witness.assert_met();
}
