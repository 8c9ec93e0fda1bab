//! The events of a thread, read at each switch.
//!
//! One set of events counts all the time, and what it gained is the group's that is left: nothing is programmed at a
//! switch, and the leaf alone is charged. Where each group has events of its own, [`perf`](crate::perf) schedules them.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter_sys::{fork, perf_event};

use crate::group::Group;
use crate::perf::Event;
use crate::perf::linux;
use crate::schema::Schema;

/// The events that a thread has opened: when it first enters a group whose schema declares them.
#[derive(Debug)]
pub(super) struct Meters {
    open: Vec<Meter>,
    /// [`fork::generation`] of the process whose thread they count.
    generation: u32,
}

#[derive(Debug)]
struct Meter {
    event: Event,
    /// `None` if it could not be opened, or has lost its counter.
    file: Option<perf_event::Event>,
    last: u64,
}

static LOST: AtomicU64 = AtomicU64::new(0);

pub(super) fn lost_events() -> u64 {
    // Relaxed: a statistic.
    LOST.load(Ordering::Relaxed)
}

impl Meters {
    pub(super) const fn new() -> Meters {
        Meters { open: Vec::new(), generation: 0 }
    }

    /// Begins an interval for the events of `schema`.
    #[cold]
    #[inline(never)]
    pub(super) fn mark(&mut self, schema: &Schema) {
        for (event, _) in schema.events() {
            self.gained(event);
        }
    }

    /// Ends an interval: adds what the events of `group`'s schema have gained to it. The next one begins.
    #[cold]
    #[inline(never)]
    pub(super) fn charge(&mut self, group: &Group) {
        for &(event, counter) in group.schema().events() {
            let gained = self.gained(&event);
            if gained > 0 {
                group.add(counter, gained);
            }
        }
    }

    /// Returns how often `event` happened since this was last asked.
    fn gained(&mut self, event: &Event) -> u64 {
        self.forget_the_parents();
        let found = self.open.iter().position(|meter| meter.event == *event);
        let at = found.unwrap_or_else(|| {
            let file = linux::open_counting(event).ok();
            self.open.push(Meter { event: *event, file, last: 0 });
            self.open.len() - 1
        });
        let meter = &mut self.open[at];
        match meter.file.as_ref().map(perf_event::Event::read) {
            Some(Ok(counts)) => {
                let gained = counts.value.wrapping_sub(meter.last);
                meter.last = counts.value;
                gained
            }
            _ => {
                // Kept as broken: an event that comes and goes would look like one that seldom happens.
                meter.file = None;
                // Relaxed: a statistic.
                LOST.fetch_add(1, Ordering::Relaxed);
                0
            }
        }
    }

    /// In a forked child, what was opened still counts the parent's thread.
    fn forget_the_parents(&mut self) {
        if self.open.is_empty() {
            fork::watch();
            self.generation = fork::generation();
        } else if self.generation != fork::generation() {
            self.open.clear();
            self.generation = fork::generation();
        }
    }
}
