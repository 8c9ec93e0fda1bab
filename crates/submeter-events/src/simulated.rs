//! Simulated counters for tests.

use crate::event::{Event, EventKind};
use crate::pmu::{Handle, NotSupportedError, Pmu};

/// A simulated CPU with a number of counters, each of which can count any event: for tests, and for
/// trying out a list of events on a machine without counters.
///
/// It is strict: removing or reading an event that is not placed panics.
#[derive(Clone, Debug)]
pub struct SimulatedPmu {
    counters: usize,
    used: usize,
    slots: Vec<SimulatedEvent>,
    free: Vec<u32>,
    /// The total of each kind so far.
    totals: Vec<(EventKind, u64)>,
    unsupported: Vec<EventKind>,
    lost: Vec<EventKind>,
    operations: u64,
}

#[derive(Clone, Debug)]
struct SimulatedEvent {
    kind: EventKind,
    placed: bool,
    live: bool,
}

impl SimulatedPmu {
    /// Creates a CPU with that many counters.
    #[must_use]
    pub fn new(counters: usize) -> SimulatedPmu {
        SimulatedPmu {
            counters,
            used: 0,
            slots: Vec::new(),
            free: Vec::new(),
            totals: Vec::new(),
            unsupported: Vec::new(),
            lost: Vec::new(),
            operations: 0,
        }
    }

    /// Refuses events of `kind` from now on, like a CPU that does not have them.
    pub fn refuse(&mut self, kind: EventKind) {
        self.unsupported.push(kind);
    }

    /// Takes away the counters of `kind` for good, as an external debugger would.
    pub fn lose(&mut self, kind: EventKind) {
        self.lost.push(kind);
    }

    /// Simulates `n` events of `kind`, which placed events count.
    pub fn count(&mut self, kind: EventKind, n: u64) {
        match self.totals.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, total)) => *total += n,
            None => self.totals.push((kind, n)),
        }
    }

    /// Returns how many counters are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns how often counters were programmed or read, which is the cost of a switch.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    fn need(&self, events: &[Handle]) -> usize {
        events.iter().filter(|&&event| self.slot(event).kind.needs_counter()).count()
    }

    fn slot(&self, event: Handle) -> &SimulatedEvent {
        let slot = &self.slots[event.0 as usize];
        assert!(slot.live, "{event:?} was released");
        slot
    }
}

impl Pmu for SimulatedPmu {
    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        if self.unsupported.contains(&event.kind()) {
            return Err(NotSupportedError::new(event, "the simulated CPU was set to refuse it"));
        }
        let slot = SimulatedEvent { kind: event.kind(), placed: false, live: true };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(slot.clone());
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize] = slot;
        Ok(Handle(index))
    }

    fn place(&mut self, events: &[Handle]) -> bool {
        self.operations += 1;
        let need = self.need(events);
        if self.used + need > self.counters {
            return false;
        }
        for event in events {
            assert!(!self.slot(*event).placed, "{event:?} is already placed");
            self.slots[event.0 as usize].placed = true;
        }
        self.used += need;
        true
    }

    fn remove(&mut self, events: &[Handle]) {
        self.operations += 1;
        for event in events {
            assert!(self.slot(*event).placed, "{event:?} is not placed");
            self.slots[event.0 as usize].placed = false;
        }
        self.used -= self.need(events);
    }

    fn read(&mut self, event: Handle) -> Option<u64> {
        self.operations += 1;
        let slot = self.slot(event);
        assert!(slot.placed, "{event:?} is not placed");
        let total = self.totals.iter().find(|(kind, _)| *kind == slot.kind);
        (!self.lost.contains(&slot.kind)).then(|| total.map_or(0, |&(_, total)| total))
    }

    fn release(&mut self, event: Handle) {
        assert!(!self.slot(event).placed, "{event:?} is placed");
        self.slots[event.0 as usize].live = false;
        self.free.push(event.0);
    }
}
