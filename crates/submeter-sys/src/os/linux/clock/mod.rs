//! Signs that a thread was switched out, and the kernel's clocks.

use std::io;

use crate::clock::{Choice, Source, syscall};

mod selftest;
pub(crate) mod ticks;
mod watch;

pub(crate) use crate::os::posix_clock::{NAME, process_cpu_ns, thread_cpu_ns};
pub(crate) use watch::Watch;

/// Tries the sources, best first. A page is best, although it takes memory for each thread and
/// kernel time at each context switch: switching to another group takes 16.4 ns with a page and
/// 18.2 without (table `worlds` of the bench, 28 November), and a wait of less than 20 µs is
/// counted exactly.
pub(crate) fn decide() -> Choice {
    if let Err(why) = ticks::rate() {
        return syscall(why.to_owned());
    }
    let page = selftest::run();
    if page == selftest::Verdict::Passed {
        let reason = format!("it {page}");
        return Choice { source: Source::PerfPage, reason, is_inconclusive: false };
    }
    let is_inconclusive = page == selftest::Verdict::Inconclusive;
    Choice { is_inconclusive, ..ticks_or_syscall(format!("perf page: {page}")) }
}

/// Chooses a source without perf events, for `reason`, and without the counter if that is not
/// usable either.
pub(crate) fn ticks_or_syscall(reason: String) -> Choice {
    match ticks::rate() {
        Ok(_) => Choice { source: Source::Ticks, reason, is_inconclusive: false },
        Err(why) => syscall(why.to_owned()),
    }
}

/// Says why there is no perf page, and what would help.
fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES) => match crate::perf_event::paranoid() {
            Some(level) if level > 2 => format!(
                "refused because kernel.perf_event_paranoid is {level}: set it to 2, or grant \
                 CAP_PERFMON"
            ),
            _ => "refused (EACCES): grant CAP_PERFMON".to_owned(),
        },
        Some(libc::EPERM | libc::ENOSYS) => {
            "refused: allow perf_event_open in the container's seccomp profile".to_owned()
        }
        _ => format!("refused: {error}"),
    }
}
