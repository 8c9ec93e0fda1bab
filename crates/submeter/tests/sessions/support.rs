//! Counters that the test drives, one set per thread.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use submeter::perf::{Event, EventGroup, EventKind, NotSupportedError, parse};
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};
use submeter_events::{Handle, Pmu, SimulatedPmu};

pub(crate) const CYCLES: EventKind = EventKind::Hardware(0);
pub(crate) const INSTRUCTIONS: EventKind = EventKind::Hardware(1);

thread_local! {
    /// The `CYCLES` and `INSTRUCTIONS` that this thread has simulated.
    static DONE: [Cell<u64>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

/// Adds `n` to the calling thread's count of `kind`.
pub(crate) fn work(kind: EventKind, n: u64) {
    DONE.with(|done| {
        let done = &done[usize::from(kind == INSTRUCTIONS)];
        done.set(done.get() + n);
    });
}

/// A [`SimulatedPmu`] that follows its thread's simulated work. It lacks `branches`.
pub(crate) struct Counters {
    simulated: SimulatedPmu,
    seen: [u64; 2],
}

impl Counters {
    pub(crate) fn new(counters: usize) -> Counters {
        let mut simulated = SimulatedPmu::new(counters);
        simulated.refuse(EventKind::Hardware(4));
        // The simulated PMU knows a kind of event once it has occurred.
        simulated.count(CYCLES, 0);
        simulated.count(INSTRUCTIONS, 0);
        Counters { simulated, seen: DONE.with(|done| [done[0].get(), done[1].get()]) }
    }
}

impl Pmu for Counters {
    fn begin(&mut self, _: u64) {
        DONE.with(|done| {
            for (at, kind) in [CYCLES, INSTRUCTIONS].into_iter().enumerate() {
                self.simulated.count(kind, done[at].get() - self.seen[at]);
                self.seen[at] = done[at].get();
            }
        });
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        self.simulated.prepare(event)
    }

    fn place(&mut self, events: &[Handle]) -> bool {
        self.simulated.place(events)
    }

    fn remove(&mut self, events: &[Handle]) {
        self.simulated.remove(events);
    }

    fn read(&mut self, event: Handle) -> Option<u64> {
        self.simulated.read(event)
    }

    fn release(&mut self, event: Handle) {
        self.simulated.release(event);
    }
}

/// A tree that meters CPU time, with `/a`, `/a/x`, `/a/y` and `/b`.
pub(crate) struct Fixture {
    pub(crate) tree: Tree,
    pub(crate) cpu: Counter<Nanoseconds>,
    pub(crate) a: Group,
    pub(crate) x: Group,
    pub(crate) y: Group,
    pub(crate) b: Group,
    /// The last field, so that the others are dropped while no other test runs.
    _alone: Option<MutexGuard<'static, ()>>,
}

pub(crate) fn fixture() -> Fixture {
    // A session that counts the whole process would count other tests' threads too.
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Fixture { _alone: Some(alone), ..another() }
}

/// A second fixture for a test that already has one.
pub(crate) fn another() -> Fixture {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = |path| tree.get_or_create(path).expect("created");
    let (a, x, y, b) = (group("/a"), group("/a/x"), group("/a/y"), group("/b"));
    Fixture { tree, cpu, a, x, y, b, _alone: None }
}

/// Parses a list that holds one event group.
pub(crate) fn one(list: &str) -> EventGroup {
    let mut groups = parse(list).expect("valid");
    assert_eq!(groups.len(), 1, "{list}");
    groups.remove(0)
}
