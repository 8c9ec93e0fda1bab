//! CPU time as an event, without the kernel.

use super::event::{Event, EventKind};
use super::pmu::{Handle, NotSupported, Pmu};

/// Counts `task-clock` and `cpu-clock`, as the CPU time that it is told.
///
/// Whoever switches a thread knows its CPU time already. So these two events cost no counter, no file
/// descriptor and no system call, need no privilege, and are always placed. Both count alike: for one thread the
/// kernel's differ only in the clock that they are read from. Modes (`:u`, `:k`) do not divide time, as they do not in the
/// kernel.
///
/// # Examples
/// ```
/// use submeter::perf::{ClockPmu, Pmu, parse};
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
    /// Makes a clock that stands at 0 until it is told the time.
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

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupported> {
        if ClockPmu::counts(event) {
            Ok(Handle(0))
        } else {
            let reason = "a clock counts task-clock and cpu-clock only: use one of these";
            Err(NotSupported::new(event, reason))
        }
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
    use super::super::parse;
    use super::*;

    #[test]
    fn what_is_no_clock_is_refused_by_name() {
        let mut pmu = ClockPmu::new();
        for list in ["cycles", "page-faults:u", "r1a8", "dummy"] {
            let event = parse(list).expect("valid")[0].events()[0];
            let refused = pmu.prepare(&event).expect_err("refused").to_string();
            assert!(refused.contains(list) && refused.contains("<not supported>"), "{refused}");
        }
    }
}
