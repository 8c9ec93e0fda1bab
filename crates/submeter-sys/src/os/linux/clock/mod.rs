//! What tells that a thread was switched out, and the clocks of the kernel.

use std::io;

use crate::clock::{Choice, Source, syscall};

mod mark;
mod selftest;
pub(crate) mod ticks;
mod watch;

pub(crate) use crate::os::posix_clock::{NAME, process_cpu_ns, thread_cpu_ns};
pub(crate) use watch::Watch;

/// Tries the sources, cheapest first.
pub(crate) fn decide() -> Choice {
    if let Err(why) = ticks::rate() {
        return syscall(why.to_owned());
    }
    let page = selftest::run(Source::PerfPage);
    if page == selftest::Verdict::Passed {
        return Choice { source: Source::PerfPage, reason: format!("it {page}") };
    }
    if crate::probe().rseq().is_some() {
        return syscall(format!("perf page: {page}; rseq mark: each update would overwrite it"));
    }
    let mark = selftest::run(Source::RseqMark);
    if mark == selftest::Verdict::Passed {
        return Choice {
            source: Source::RseqMark,
            reason: format!("it {mark}; perf page: {page}"),
        };
    }
    syscall(format!("perf page: {page}; rseq mark: {mark}"))
}

/// Says why `source` cannot be had, and what would help.
fn refusal(source: Source, error: &io::Error) -> String {
    match (source, error.raw_os_error()) {
        (Source::PerfPage, Some(libc::EACCES)) => match crate::perf_event::paranoid() {
            Some(level) if level > 2 => format!(
                "refused, as kernel.perf_event_paranoid is {level}: set it to 2, or grant CAP_PERFMON"
            ),
            _ => "refused (EACCES): grant CAP_PERFMON".to_owned(),
        },
        (Source::PerfPage, Some(libc::EPERM | libc::ENOSYS)) => {
            "refused: allow perf_event_open in the container's seccomp profile".to_owned()
        }
        (Source::RseqMark, None) => "libc registers no thread for rseq".to_owned(),
        _ => format!("refused: {error}"),
    }
}
