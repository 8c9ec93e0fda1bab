//! The events of a thread, read at each switch.
//!
//! One set of events counts all the time, and what it gained is the group's that is left: nothing
//! is programmed at a switch, and the leaf alone is charged. Where each group has events of its
//! own, [`perf`](crate::perf) schedules them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::Group;
use crate::perf::{Event, Handle, KernelPmu, Pmu};
use crate::schema::Schema;

/// The events that a thread has opened: when it first enters a group whose schema declares them.
#[derive(Debug)]
pub(super) struct Meters {
    /// Made with the first event: a thread that counts none has no use for it.
    pmu: Option<KernelPmu>,
    open: Vec<Meter>,
}

#[derive(Debug)]
struct Meter {
    event: Event,
    /// `None` if it could not be opened, or has lost its counter.
    handle: Option<Handle>,
    last: u64,
}

static LOST: AtomicU64 = AtomicU64::new(0);

pub(super) fn lost_events() -> u64 {
    // Relaxed: a statistic.
    LOST.load(Ordering::Relaxed)
}

/// Whether `schema` declares events.
pub(super) fn are_declared(schema: &Schema) -> bool {
    !schema.events().is_empty()
}

impl Meters {
    pub(super) const fn new() -> Meters {
        Meters { pmu: None, open: Vec::new() }
    }

    /// Begins an interval for the events of `schema`.
    #[cold]
    #[inline(never)]
    pub(super) fn mark(&mut self, schema: &Schema) {
        self.begin();
        for (event, _) in schema.events() {
            self.gained(event);
        }
    }

    /// Ends an interval: adds what the events of `group`'s schema have gained to it. The next one
    /// begins.
    #[cold]
    #[inline(never)]
    pub(super) fn charge(&mut self, group: &Group) {
        self.begin();
        for &(event, counter) in group.schema().events() {
            let gained = self.gained(&event);
            if gained > 0 {
                group.add(counter, gained);
            }
        }
    }

    /// All events are read at one moment: by one system call, where it takes any.
    fn begin(&mut self) {
        // The time is a clock's to know, and CPU time is not charged here.
        self.pmu.get_or_insert_default().begin(0);
    }

    /// Returns how often `event` happened since this was last asked.
    fn gained(&mut self, event: &Event) -> u64 {
        let pmu = self.pmu.get_or_insert_default();
        let found = self.open.iter().position(|meter| meter.event == *event);
        let at = found.unwrap_or_else(|| {
            let handle = pmu.prepare(event).ok().filter(|&handle| pmu.place(&[handle]));
            self.open.push(Meter { event: *event, handle, last: 0 });
            self.open.len() - 1
        });
        let meter = &mut self.open[at];
        match meter.handle.and_then(|handle| pmu.read(handle)) {
            Some(value) => {
                let gained = value.wrapping_sub(meter.last);
                meter.last = value;
                gained
            }
            None => {
                // Kept as broken: an event that comes and goes would look like one that seldom
                // happens.
                meter.handle = None;
                // Relaxed: a statistic.
                LOST.fetch_add(1, Ordering::Relaxed);
                0
            }
        }
    }
}
