//! The kernel's counters, by `perf_event_open`.
//!
//! Each event is opened once a thread, however many groups count it, and its count is read when one of them comes and
//! goes: nothing is programmed anew at a switch between groups that count the same. An event that nobody counts any
//! more keeps its counter until another needs it.
//!
//! The kernel would share counters out by itself, at its own pace, and then a difference of two readings would be
//! an estimate. So events are opened pinned: one that has no counter reads as an error at once, and the
//! scheduler above, which knows the groups, shares them out.

use std::io;
use std::marker::PhantomData;

use submeter_sys::perf_event::{self, Config};

use super::event::{Event, EventKind};
use super::pmu::{Handle, NotSupported, Pmu};

/// Counts on the thread that made it, with the kernel's events and the hardware's.
///
/// Costs a file descriptor for each different event, and a system call to read one. What needs privilege, or what
/// the machine lacks, is refused when it is attached.
#[derive(Debug, Default)]
pub struct LinuxPmu {
    /// In the order of their handles.
    prepared: Vec<Option<usize>>,
    opened: Vec<Option<Opened>>,
    /// The events count on the thread that opened them.
    _not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Opened {
    event: Event,
    file: perf_event::Event,
    /// Handles to it.
    handles: usize,
    /// How many of them are placed.
    placed: usize,
    /// Whether it has a counter, placed or not.
    counting: bool,
}

impl LinuxPmu {
    /// Makes the calling thread's counters; none is opened yet.
    #[must_use]
    pub fn new() -> LinuxPmu {
        LinuxPmu::default()
    }

    /// Finds out whether an event can be counted here at all, by opening it once.
    ///
    /// # Errors
    /// When it cannot, with the reason and what would help.
    pub fn supports(event: &Event) -> Result<(), NotSupported> {
        open(event).map(drop)
    }

    fn find(&self, event: &Event) -> Option<usize> {
        self.opened.iter().position(|opened| opened.as_ref().is_some_and(|o| o.event == *event))
    }

    fn index(&self, handle: Handle) -> Option<usize> {
        self.prepared.get(handle.0 as usize).copied().flatten()
    }

    fn opened(&mut self, handle: Handle) -> Option<&mut Opened> {
        let index = self.index(handle)?;
        self.opened[index].as_mut()
    }

    /// Stops what counts for nobody. Returns whether that freed counters.
    fn reclaim(&mut self) -> bool {
        let idle = self.opened.iter_mut().flatten().filter(|o| o.counting && o.placed == 0);
        idle.map(Opened::stop).count() > 0
    }

    /// Places all events or none.
    pub(super) fn place_each(&mut self, events: impl Iterator<Item = Handle> + Clone) -> bool {
        for again in [true, false] {
            let (placed, all) = self.try_place(events.clone());
            if all {
                return true;
            }
            self.remove_each(events.clone().take(placed));
            if !(again && self.reclaim()) {
                break;
            }
        }
        false
    }

    pub(super) fn remove_each(&mut self, events: impl Iterator<Item = Handle>) {
        for handle in events {
            if let Some(opened) = self.opened(handle) {
                opened.placed = opened.placed.saturating_sub(1);
            }
        }
    }

    /// Places events until the first that has no counter: returns how many, and whether that was all.
    fn try_place(&mut self, events: impl Iterator<Item = Handle>) -> (usize, bool) {
        let mut placed = 0;
        for handle in events {
            let Some(opened) = self.opened(handle) else { return (placed, false) };
            if !opened.counting && !opened.start() {
                return (placed, false);
            }
            opened.placed += 1;
            placed += 1;
        }
        (placed, true)
    }
}

impl Opened {
    /// Takes a counter. Returns whether there was one.
    fn start(&mut self) -> bool {
        self.counting = self.file.enable().is_ok() && self.file.read().is_ok();
        if !self.counting {
            // In error: off, so that enabling it tries again.
            let _ = self.file.disable();
        }
        self.counting
    }

    fn stop(&mut self) {
        // A failure leaves it counting for nobody.
        let _ = self.file.disable();
        self.counting = false;
    }
}

impl Pmu for LinuxPmu {
    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupported> {
        let index = match self.find(event) {
            Some(index) => index,
            None => {
                let file = open(event)?;
                let new = Opened { event: *event, file, handles: 0, placed: 0, counting: false };
                let free = self.opened.iter().position(Option::is_none);
                let index = free.unwrap_or_else(|| {
                    self.opened.push(None);
                    self.opened.len() - 1
                });
                self.opened[index] = Some(new);
                index
            }
        };
        if let Some(opened) = &mut self.opened[index] {
            opened.handles += 1;
        }
        let handle = self.prepared.iter().position(Option::is_none).unwrap_or_else(|| {
            self.prepared.push(None);
            self.prepared.len() - 1
        });
        self.prepared[handle] = Some(index);
        Ok(Handle(handle as u32))
    }

    fn place(&mut self, events: &[Handle]) -> bool {
        self.place_each(events.iter().copied())
    }

    fn remove(&mut self, events: &[Handle]) {
        self.remove_each(events.iter().copied());
    }

    fn read(&mut self, event: Handle) -> Option<u64> {
        let opened = self.opened(event)?;
        let counts = opened.file.read();
        if counts.is_err() {
            opened.stop();
        }
        counts.ok().map(|counts| counts.value)
    }

    fn release(&mut self, event: Handle) {
        let Some(index) = self.index(event) else { return };
        self.prepared[event.0 as usize] = None;
        if let Some(opened) = &mut self.opened[index] {
            opened.handles -= 1;
            if opened.handles == 0 {
                self.opened[index] = None;
            }
        }
    }
}

/// Opens an event for the calling thread, to count from now on. For whoever reads it all the time.
pub(crate) fn open_counting(event: &Event) -> io::Result<perf_event::Event> {
    let file = open_file(event)?;
    file.enable()?;
    Ok(file)
}

/// Opens an event for the calling thread, off its counter.
fn open(event: &Event) -> Result<perf_event::Event, NotSupported> {
    open_file(event).map_err(|error| NotSupported::new(event, reason(event, &error)))
}

fn open_file(event: &Event) -> io::Result<perf_event::Event> {
    // `PERF_TYPE_RAW`
    const RAW: u32 = 4;
    let (kind, number) = match event.kind() {
        EventKind::Hardware(number) => (perf_event::TYPE_HARDWARE, number),
        EventKind::Software(number) => (perf_event::TYPE_SOFTWARE, number),
        EventKind::Raw(code) => (RAW, code),
    };
    let config = Config {
        user: event.counts_user(),
        kernel: event.counts_kernel(),
        pinned: true,
        ..Config::new(kind, number)
    };
    let file = perf_event::Event::open(&config, None)?;
    file.disable()?;
    Ok(file)
}

/// Says why the kernel refused, and what would help.
fn reason(event: &Event, error: &io::Error) -> String {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => {
            "the CPU does not count it, or its hypervisor hides it: use a software event".to_owned()
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
