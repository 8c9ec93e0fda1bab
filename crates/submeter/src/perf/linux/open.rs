//! Opens events, and explains refusals.

use std::io;

use submeter_sys::perf_event::{self, Config};

use crate::perf::event::{Event, EventKind};

/// Why `context-switches:u` is refused: the kernel would take it, and always report 0.
pub(super) const ONLY_IN_THE_KERNEL: &str = "it happens only in the kernel: leave out the `:u`, \
     and set kernel.perf_event_paranoid to 1 or grant CAP_PERFMON if that is refused";

/// Opens an event for the calling thread; a pinned one starts off its counter.
pub(super) fn open_file(event: &Event, pinned: bool) -> io::Result<perf_event::Event> {
    let file = perf_event::Event::open(&config(event, pinned), None)?;
    if pinned {
        file.disable()?;
    }
    Ok(file)
}

pub(super) fn config(event: &Event, pinned: bool) -> Config {
    // `PERF_TYPE_RAW`
    const RAW: u32 = 4;
    let (kind, number) = match event.kind() {
        EventKind::Hardware(number) => (perf_event::TYPE_HARDWARE, number),
        EventKind::Software(number) => (perf_event::TYPE_SOFTWARE, number),
        EventKind::Raw(code) => (RAW, code),
    };
    let (user, kernel) = (event.counts_user(), event.counts_kernel());
    Config { user, kernel, pinned, ..Config::new(kind, number) }
}

/// Returns why the kernel refused, with a remedy.
pub(super) fn reason(event: &Event, error: &io::Error) -> String {
    use io::ErrorKind;
    // `EMFILE` and `ENFILE`, for which the standard library has no kind.
    match error.raw_os_error() {
        Some(24) => return format!("{error}: raise `ulimit -n`, or ask for fewer events"),
        Some(23) => return format!("{error}: raise fs.file-max, or ask for fewer events"),
        _ => {}
    }
    match error.kind() {
        ErrorKind::NotFound => {
            "the CPU does not count it, or the hypervisor hides it: use a software event".to_owned()
        }
        ErrorKind::PermissionDenied if matches!(event.kind(), EventKind::Software(3 | 4)) => {
            format!("{error}: set kernel.perf_event_paranoid to 1, or grant CAP_PERFMON")
        }
        ErrorKind::PermissionDenied if event.counts_kernel() => format!(
            "{error}: count user mode only ({}:u), set kernel.perf_event_paranoid to 1, or grant CAP_PERFMON",
            event.kind()
        ),
        ErrorKind::PermissionDenied => {
            format!("{error}: allow perf_event_open in the container, or grant CAP_PERFMON")
        }
        ErrorKind::Unsupported => format!("{error}: the kernel or the CPU lacks it"),
        _ => error.to_string(),
    }
}
