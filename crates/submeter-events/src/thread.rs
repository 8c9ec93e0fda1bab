//! All counters of a thread: its clock for CPU time, the kernel's for everything else.

use crate::KernelPmu;
use crate::event::{Event, EventKind};
use crate::pmu::{Handle, NotSupportedError, Pmu};

/// The counters of the thread that created it: CPU time from a [`ClockPmu`], all other events from
/// the kernel ([`KernelPmu`]).
///
/// An event group may mix both kinds. If the kernel refuses every event, CPU time is still counted.
///
/// # Examples
/// ```
/// use submeter_events::{Scheduler, Scope, ThreadPmu, parse};
///
/// // The time is that of a clock that stands still while the thread does not run.
/// let mut events = Scheduler::new(ThreadPmu::new());
/// let id = events.attach(Scope::Everywhere, &parse("task-clock")?[0], 100)?;
/// assert_eq!(events.counts(id, 150).expect("attached").values, [50]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ThreadPmu {
    clock: ClockPmu,
    kernel: KernelPmu,
}

/// The bit in a handle that marks an event of the clock. The kernel's handles are small numbers.
const CLOCK: u32 = 1 << 31;

impl ThreadPmu {
    /// Creates the calling thread's counters; none is opened yet.
    #[must_use]
    pub fn new() -> ThreadPmu {
        ThreadPmu::default()
    }

    /// Checks whether an event can be counted here at all.
    ///
    /// # Errors
    /// When it cannot, with the reason and the remedy.
    pub fn supports(event: &Event) -> Result<(), NotSupportedError> {
        if ClockPmu::counts(event) { Ok(()) } else { KernelPmu::supports(event) }
    }
}

impl Pmu for ThreadPmu {
    #[inline]
    fn begin(&mut self, now_ns: u64) {
        self.clock.begin(now_ns);
        self.kernel.begin(now_ns);
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        if ClockPmu::counts(event) {
            self.clock.prepare(event).map(|_| Handle(CLOCK))
        } else {
            self.kernel.prepare(event)
        }
    }

    #[inline]
    fn is_clock(&self, event: Handle) -> bool {
        is_clock(event)
    }

    #[inline]
    fn place(&mut self, events: &[Handle]) -> bool {
        // The clock is always placed, and most switches need nothing else.
        events.iter().all(|&event| is_clock(event))
            || self.kernel.place_each(events.iter().copied().filter(|&event| !is_clock(event)))
    }

    #[inline]
    fn remove(&mut self, events: &[Handle]) {
        self.kernel.remove_each(events.iter().copied().filter(|&event| !is_clock(event)));
    }

    #[inline]
    fn read(&mut self, event: Handle) -> Option<u64> {
        if is_clock(event) { self.clock.read(event) } else { self.kernel.read(event) }
    }

    fn release(&mut self, event: Handle) {
        if !is_clock(event) {
            self.kernel.release(event);
        }
    }
}

fn is_clock(event: Handle) -> bool {
    event.0 & CLOCK != 0
}

/// A counter of `task-clock` and `cpu-clock`: the CPU time that the caller passes in.
///
/// A switch has already read the thread's CPU time. These two events therefore cost no counter, no
/// file descriptor and no system call, need no privilege, and are always placed. Both count the
/// same: for a single thread, the kernel's differ only in their clock source. Modes (`:u`, `:k`) do
/// not split the time, as in the kernel.
///
/// # Examples
/// ```
/// use submeter_events::{ClockPmu, Pmu, parse};
///
/// let mut pmu = ClockPmu::new();
/// let event = pmu.prepare(&parse("task-clock")?[0].events()[0])?;
/// pmu.begin(1_000);
/// assert!(pmu.place(&[event]));
/// assert_eq!(pmu.read(event), Some(1_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClockPmu {
    now_ns: u64,
}

impl ClockPmu {
    /// Creates a clock that is 0 until the first [`begin`](Pmu::begin).
    #[must_use]
    pub fn new() -> ClockPmu {
        ClockPmu::default()
    }

    /// Returns whether it counts `event`.
    #[must_use]
    pub fn counts(event: &Event) -> bool {
        // The numbers of cpu-clock and task-clock.
        matches!(event.kind(), EventKind::Software(0 | 1))
    }
}

impl Pmu for ClockPmu {
    fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        if ClockPmu::counts(event) {
            Ok(Handle(0))
        } else {
            let reason = "a clock counts only task-clock and cpu-clock: use one of these";
            Err(NotSupportedError::new(event, reason))
        }
    }

    fn is_clock(&self, _: Handle) -> bool {
        true
    }

    fn place(&mut self, _: &[Handle]) -> bool {
        true
    }

    fn remove(&mut self, _: &[Handle]) {}

    fn read(&mut self, _: Handle) -> Option<u64> {
        Some(self.now_ns)
    }

    fn release(&mut self, _: Handle) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// An event that is not a clock is refused by name.
    #[test]
    fn an_event_that_is_no_clock_is_refused() {
        let mut pmu = ClockPmu::new();
        for list in ["cycles", "page-faults:u", "r1a8", "dummy"] {
            let event = parse(list).expect("valid")[0].events()[0];
            let refused = pmu.prepare(&event).expect_err("refused").to_string();
            assert!(refused.contains(list) && refused.contains("<not supported>"), "{refused}");
        }
    }
}
