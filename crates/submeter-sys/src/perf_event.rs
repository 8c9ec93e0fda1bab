//! `perf_event_open`: counters of the kernel and the hardware, for one thread.
//!
//! Where it is refused (a container's seccomp filter, `kernel.perf_event_paranoid` above 2), the
//! hardware has no such counter, or the system is not Linux, opening fails: it never returns a
//! counter that stays at 0.

pub use crate::os::perf_event::{Event, FastRead, Switches, Together};

/// `PERF_TYPE_HARDWARE` (linux/perf_event.h).
pub const TYPE_HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_TASK_CLOCK`: nanoseconds of CPU time.
pub const SOFTWARE_TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
pub const SOFTWARE_CONTEXT_SWITCHES: u64 = 3;
/// `PERF_COUNT_SW_DUMMY`: counts nothing.
pub const SOFTWARE_DUMMY: u64 = 9;

/// An event to count, by the numbers of `perf_event_open(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Which unit counts: `PERF_TYPE_…`, or the number in a `type` file of `/sys/bus/event_source`.
    pub kind: u32,
    /// Which of its events.
    pub event: u64,
    /// Whether to count in user mode.
    pub user: bool,
    /// Whether to count in the kernel, which may need privilege.
    pub kernel: bool,
    /// Whether the event must be counted always or not at all. For leaders only.
    pub pinned: bool,
}

impl Config {
    /// Counts `event` of unit `kind` in user mode, which needs the least privilege.
    #[must_use]
    pub fn new(kind: u32, event: u64) -> Config {
        Config { kind, event, user: true, kernel: false, pinned: false }
    }
}

/// The count of an event, and the time for which it could count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The count.
    pub value: u64,
    /// How long the event was enabled while its thread ran.
    pub enabled_ns: u64,
    /// How long of that time it had a counter: less, if more is asked than the hardware can count.
    pub running_ns: u64,
}

/// Returns how much unprivileged callers may count: `kernel.perf_event_paranoid`. `None` if the
/// kernel does not say.
#[must_use]
pub fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}
