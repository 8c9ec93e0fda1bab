//! One event of the kernel's, and what it had counted when it was last read.

use std::io;

use submeter_sys::perf_event::{self, FastRead, Together};

use super::open;
use crate::perf::event::{Event, EventKind};

/// How an event is read, which depends on when it can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// On a counter of the CPU: by an instruction, or a system call.
    Counter,
    /// Of the kernel, and changes only when the thread is switched: by a system call after each
    /// switch.
    AtSwitch,
    /// Of the kernel, and changes at any time: by one system call with all of its kind.
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
    /// What [`Together`] calls it.
    pub(super) number: Option<u64>,
    /// Handles to it.
    pub(super) handles: usize,
    /// How many of them are placed.
    pub(super) placed: usize,
    /// Whether it has a counter, or needs none. Not so for one that was lost.
    pub(super) counting: bool,
    /// What it had counted at `moment`.
    pub(super) value: u64,
    /// When `value` was taken, by the PMU's count of moments; 0 if that is not known.
    pub(super) moment: u64,
    /// After how many switches `value` was taken.
    switches: u64,
    /// What it had counted before it was opened anew.
    before: u64,
    /// `None` after a fork in which it could not be opened again.
    file: Option<perf_event::Event>,
    fast: Option<FastRead>,
}

impl Opened {
    /// Opens an event by itself.
    pub(super) fn alone(event: &Event) -> io::Result<Opened> {
        let on_a_counter = Way::of(event) == Way::Counter;
        let file = open::open_file(event, on_a_counter)?;
        let fast = if on_a_counter { FastRead::of(&file).ok() } else { None };
        Ok(Opened { fast, ..Opened::new(event, file) })
    }

    /// Opens an event among others, if there is a place for it.
    pub(super) fn together(event: &Event, others: Option<&mut Together>) -> io::Result<Opened> {
        let config = open::config(event, false);
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

    /// Goes on as `new`, which counts from 0; as lost without one.
    pub(super) fn renewed(self, new: Option<Opened>) -> Opened {
        let Some(mut new) = new else {
            return Opened { file: None, fast: None, counting: false, moment: 0, ..self };
        };
        (new.handles, new.placed) = (self.handles, self.placed);
        new.before = self.value;
        if self.counting && !new.counting {
            // One that finds no counter is noticed by the next read.
            new.start();
        }
        new
    }

    /// Whether it holds a counter that nothing uses.
    pub(super) fn is_idle(&self) -> bool {
        self.way == Way::Counter && self.counting && self.placed == 0
    }

    /// Takes a counter. Returns whether there was one.
    #[cold]
    pub(super) fn start(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        self.counting = file.enable().is_ok() && file.read().is_ok();
        if !self.counting {
            // In error: off, so that enabling it tries again.
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

    /// Reads it by itself. `None` if it has lost its counter.
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

    /// Reads it, unless it cannot have changed: `switches` have been noticed by now.
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
