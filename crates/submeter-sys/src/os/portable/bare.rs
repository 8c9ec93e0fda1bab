//! Nothing but the standard library: Miri, and systems that are neither Unix nor Windows.

pub(crate) use super::{heap as memory, no_fork as fork};

pub(crate) mod clock {
    //! There is no clock of CPU time: elapsed time stands in for it.

    use std::time::Instant;

    /// The clock in use.
    pub(crate) const NAME: &str = "time since the thread's first reading";

    pub(crate) fn thread_cpu_ns() -> u64 {
        thread_local!(static START: Instant = Instant::now());
        START.with(|start| start.elapsed().as_nanos() as u64)
    }

    pub(crate) fn process_cpu_ns() -> u64 {
        thread_cpu_ns()
    }
}
