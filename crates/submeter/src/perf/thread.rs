//! All that a thread can count: its clock for CPU time, the kernel for the rest.

use super::clock::ClockPmu;
use super::event::Event;
use super::linux::LinuxPmu;
use super::pmu::{Handle, NotSupported, Pmu};

/// Counts on the thread that made it: CPU time as a [`ClockPmu`] does, all other events as a [`LinuxPmu`] does.
///
/// An event group may have both kinds. Where the kernel refuses every event, CPU time is still counted.
///
/// # Examples
/// ```
/// use submeter::perf::{GroupKey, Scheduler, Scope, ThreadPmu, parse};
/// use submeter::switch::clock;
///
/// let mut events = Scheduler::new(ThreadPmu::new());
/// events.attach(Scope::Group(GroupKey(1)), &parse("task-clock")?[0], clock::thread_cpu_ns())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ThreadPmu {
    clock: ClockPmu,
    kernel: LinuxPmu,
}

/// The bit of a handle that says that the clock counts the event. The kernel's handles are small numbers.
const CLOCK: u32 = 1 << 31;

impl ThreadPmu {
    /// Makes the calling thread's counters; none is opened yet.
    #[must_use]
    pub fn new() -> ThreadPmu {
        ThreadPmu::default()
    }

    /// Finds out whether an event can be counted here at all.
    ///
    /// # Errors
    /// When it cannot, with the reason and what would help.
    pub fn supports(event: &Event) -> Result<(), NotSupported> {
        if ClockPmu::counts(event) { Ok(()) } else { LinuxPmu::supports(event) }
    }
}

impl Pmu for ThreadPmu {
    #[inline]
    fn begin(&mut self, now_ns: u64) {
        self.clock.begin(now_ns);
        self.kernel.begin(now_ns);
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupported> {
        if ClockPmu::counts(event) {
            self.clock.prepare(event).map(|_| Handle(CLOCK))
        } else {
            self.kernel.prepare(event)
        }
    }

    #[inline]
    fn place(&mut self, events: &[Handle]) -> bool {
        // The clock is always placed: most switches ask for nothing else.
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
