//! One event: how it is opened, why that may be refused, and its last count.

use std::io;

use submeter_sys::perf_event::{self, Config, FastRead, Together};

use crate::event::{Event, EventKind};

/// How an event is read, which depends on when its count can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is on a hardware counter: read by an instruction or a system call.
    Counter,
    /// It is an event of the kernel that changes only at a context switch of the thread: read by a
    /// system call after each one.
    AtSwitch,
    /// It is an event of the kernel that changes at any time: read by one system call with all
    /// others of this kind.
    Together,
}

impl Way {
    pub(super) fn of(event: &Event) -> Way {
        match event.kind() {
            // The numbers of context-switches and cpu-migrations.
            EventKind::Software(3 | 4) => Way::AtSwitch,
            EventKind::Software(_) => Way::Together,
            EventKind::Hardware(_) | EventKind::Raw(_) => Way::Counter,
        }
    }
}

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) event: Event,
    pub(super) way: Way,
    /// Its number in [`Together`].
    pub(super) number: Option<u64>,
    /// The number of handles to it.
    pub(super) handles: usize,
    /// How many of them are placed.
    pub(super) placed: usize,
    /// Whether it has a counter, or needs none; false once it has lost its counter.
    pub(super) counting: bool,
    /// Its count at `moment`.
    pub(super) value: u64,
    /// The moment at which `value` was read; 0 if unknown.
    pub(super) moment: u64,
    /// The number of context switches before `value` was read.
    switches: u64,
    /// Its count before it was opened again.
    before: u64,
    /// `None` after a fork in which it could not be opened again.
    file: Option<perf_event::Event>,
    fast: Option<FastRead>,
}

impl Opened {
    /// Opens an event that is read by itself.
    pub(super) fn alone(event: &Event) -> io::Result<Opened> {
        let on_a_counter = Way::of(event) == Way::Counter;
        let file = open_file(event, on_a_counter)?;
        let fast = if on_a_counter { FastRead::of(&file).ok() } else { None };
        Ok(Opened { fast, ..Opened::new(event, file) })
    }

    /// Opens an event that is read with others, if possible.
    pub(super) fn together(event: &Event, others: Option<&mut Together>) -> io::Result<Opened> {
        let config = config(event, false);
        match others.and_then(|others| others.open(&config).ok()) {
            Some((file, number)) => Ok(Opened { number: Some(number), ..Opened::new(event, file) }),
            None => Opened::alone(event),
        }
    }

    fn new(event: &Event, file: perf_event::Event) -> Opened {
        let way = Way::of(event);
        Opened {
            event: *event,
            way,
            number: None,
            handles: 0,
            placed: 0,
            counting: way != Way::Counter,
            value: 0,
            moment: 0,
            switches: 0,
            before: 0,
            file: Some(file),
            fast: None,
        }
    }

    /// Continues as `new`, which counts from 0; without one, it is lost.
    pub(super) fn renewed(self, new: Option<Opened>) -> Opened {
        let Some(mut new) = new else {
            return Opened { file: None, fast: None, counting: false, moment: 0, ..self };
        };
        (new.handles, new.placed) = (self.handles, self.placed);
        new.before = self.value;
        if self.counting && !new.counting {
            // The next read notices if it finds no counter.
            new.start();
        }
        new
    }

    /// Returns whether it holds an unused counter.
    pub(super) fn is_idle(&self) -> bool {
        self.way == Way::Counter && self.counting && self.placed == 0
    }

    /// Claims a counter; returns whether there was one.
    #[cold]
    pub(super) fn start(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        self.counting = file.enable().is_ok() && file.read().is_ok();
        if !self.counting {
            // In the error state: disabled, so that enabling it tries again.
            let _ = file.disable();
        }
        self.counting
    }

    #[cold]
    pub(super) fn stop(&mut self) {
        if let Some(file) = &self.file {
            // A failure leaves it counting, which does no harm.
            let _ = file.disable();
        }
        self.counting = false;
    }

    /// Reads its count. `None` if it has lost its counter.
    pub(super) fn take(&mut self, moment: u64) -> Option<u64> {
        let fast = self.fast.as_ref().and_then(FastRead::read);
        match fast.or_else(|| Some(self.file.as_ref()?.read().ok()?.value)) {
            Some(value) => Some(self.note(value, moment)),
            None => {
                self.stop();
                None
            }
        }
    }

    /// Reads its count unless it cannot have changed; `switches` is the number noticed so far.
    pub(super) fn take_after_switch(&mut self, moment: u64, switches: u64) -> Option<u64> {
        if self.switches == switches {
            self.moment = moment;
            return Some(self.value);
        }
        let value = self.take(moment)?;
        self.switches = switches;
        Some(value)
    }

    pub(super) fn note(&mut self, value: u64, moment: u64) -> u64 {
        (self.value, self.moment) = (self.before + value, moment);
        self.value
    }
}

/// Why `context-switches:u` is refused: the kernel would take it, and always report 0.
pub(super) const ONLY_IN_THE_KERNEL: &str = "it happens only in the kernel: leave out the `:u`, \
     and set kernel.perf_event_paranoid to 1 or grant CAP_PERFMON if that is refused";

/// Opens an event for the calling thread; a pinned one starts off its counter.
fn open_file(event: &Event, pinned: bool) -> io::Result<perf_event::Event> {
    let file = perf_event::Event::open(&config(event, pinned), None)?;
    if pinned {
        file.disable()?;
    }
    Ok(file)
}

fn config(event: &Event, pinned: bool) -> Config {
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
        ErrorKind::Unsupported => format!("{error}: the kernel or the CPU does not support it"),
        _ => error.to_string(),
    }
}
