//! The events of a thread, read at each switch.
//!
//! One set of events counts continuously, and the group that is left is charged with the increase:
//! a switch programs nothing and charges only the leaf. Where groups have events of their own,
//! [`perf`](crate::perf) schedules them.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter_events::{Event, Handle, KernelPmu, Pmu};

use crate::metric::schema::Schema;
use crate::tree::group::Group;

/// The events that a thread has opened, which it does when it first enters a group that declares
/// them.
#[derive(Debug)]
pub(super) struct Meters {
    /// Created with the first event: a thread without events needs none.
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

/// Returns whether `schema` declares events.
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

    /// Ends an interval: charges `group` with the increase of its schema's events. The next
    /// interval begins.
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

    /// Starts a moment at which all events are read: by one system call, if one is needed.
    fn begin(&mut self) {
        // The time does not matter, because CPU time is not charged here.
        self.pmu.get_or_insert_default().begin(0);
    }

    /// Returns how often `event` happened since the last call for it.
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
                // Not opened again: an event that counts only at times would look like a rare one.
                meter.handle = None;
                // Relaxed: a statistic.
                LOST.fetch_add(1, Ordering::Relaxed);
                0
            }
        }
    }
}
