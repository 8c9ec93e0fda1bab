//! The event scheduler and its oracle, side by side.

mod oracle;

use proptest::prelude::*;
use submeter::perf::{EventKind, parse};
use submeter_events::{EventGroupId, GroupKey, Scheduler, Scope, SimulatedPmu, State};

pub use oracle::{EventOracle, Naive};

/// One step of a script. Indices are taken modulo the number of items.
#[derive(Clone, Debug)]
pub enum EventOp {
    /// Attaches one of the known event groups to a group or, for an index beyond the last group, to
    /// all.
    Attach {
        /// Which group.
        to: usize,
        /// Which event group.
        list: usize,
    },
    /// Detaches an event group that was attached, and may already be detached.
    Detach {
        /// Which.
        nth: usize,
    },
    /// Switches to a group or, for an index beyond the last group, to none.
    Switch {
        /// Which.
        to: usize,
    },
    /// Rotates the flexible event groups.
    Rotate,
    /// Simulates time and events.
    Run {
        /// The duration.
        ns: u64,
        /// The number of events.
        n: u64,
    },
}

/// Makes random scripts.
pub fn event_script(len_max: usize) -> impl Strategy<Value = Vec<EventOp>> {
    let op = prop_oneof![
        3 => (any::<usize>(), any::<usize>()).prop_map(|(to, list)| EventOp::Attach { to, list }),
        1 => any::<usize>().prop_map(|nth| EventOp::Detach { nth }),
        4 => any::<usize>().prop_map(|to| EventOp::Switch { to }),
        2 => Just(EventOp::Rotate),
        4 => (0..1000u64, 0..1000u64).prop_map(|(ns, n)| EventOp::Run { ns, n }),
    ];
    prop::collection::vec(op, 1..len_max)
}

/// Runs a script on a CPU with `counters` counters.
///
/// # Panics
/// When scheduler and oracle differ.
pub fn run_events(counters: usize, script: &[EventOp]) {
    let mut both = EventDifferential {
        scheduler: Scheduler::new(SimulatedPmu::new(counters)),
        oracle: EventOracle::new(counters),
        ids: Vec::new(),
        now_ns: 0,
    };
    for (step, op) in script.iter().enumerate() {
        both.apply(op);
        both.compare(&format!("{counters} counters, after step {step}, {op:?}"));
    }
}

/// The parent of each group; the first is the root.
const PARENTS: [usize; 9] = [0, 0, 0, 1, 1, 3, 2, 6, 7];

/// The event groups that scripts attach.
const LISTS: [&str; 10] = [
    "cycles",
    "instructions",
    "{cycles,instructions}",
    "{cycles,instructions,branches}",
    "{cycles,task-clock}",
    "task-clock",
    "cycles:D",
    "{cycles,instructions}:D",
    "task-clock:D",
    "{page-faults,r1a8}",
];

struct EventDifferential {
    scheduler: Scheduler<SimulatedPmu>,
    oracle: EventOracle,
    ids: Vec<EventGroupId>,
    now_ns: u64,
}

impl EventDifferential {
    fn apply(&mut self, op: &EventOp) {
        match *op {
            EventOp::Attach { to, list } => {
                let to = to % (PARENTS.len() + 1);
                let everywhere = to == PARENTS.len();
                let scope = if everywhere { Scope::Everywhere } else { Scope::Group(key(to)) };
                let group = &parse(LISTS[list % LISTS.len()]).expect("valid")[0];
                let id = self.scheduler.attach(scope, group, self.now_ns);
                self.ids.push(id.expect("supported"));
                self.oracle.attach(scope, group);
            }
            EventOp::Detach { nth } => {
                let Some(nth) = nth.checked_rem(self.ids.len()) else { return };
                let live = self.oracle.attached()[nth].live;
                let last = self.scheduler.detach(self.ids[nth], self.now_ns);
                assert_eq!(last.is_some(), live);
                self.oracle.detach(nth);
                if let Some(last) = last {
                    let naive = &self.oracle.attached()[nth];
                    assert_eq!((last.state, &last.values), (naive.state, &naive.values));
                }
            }
            EventOp::Switch { to } => {
                let chain = chain(to % (PARENTS.len() + 1));
                self.scheduler.switch(&chain, self.now_ns);
                self.oracle.switch(&chain);
            }
            EventOp::Rotate => {
                assert_eq!(self.scheduler.rotate(self.now_ns), self.oracle.rotate());
            }
            EventOp::Run { ns, n } => {
                // Each kind occurs at a different rate.
                let happened =
                    kinds().map(|kind| (kind, n * (1 + u64::from(kind.needs_counter()))));
                for (kind, n) in happened {
                    self.scheduler.pmu_mut().count(kind, n);
                }
                self.now_ns += ns;
                self.oracle.run(ns, &happened);
            }
        }
    }

    fn compare(&mut self, at: &str) {
        assert_eq!(self.scheduler.pmu().used(), self.oracle.used(), "{at}: counters in use");
        for (index, (naive, &id)) in self.oracle.attached().iter().zip(&self.ids).enumerate() {
            let counts = self.scheduler.counts(id, self.now_ns);
            assert_eq!(counts.is_some(), naive.live, "{at}: event group {index}");
            let Some(counts) = counts else { continue };
            let times = (counts.enabled_ns, counts.running_ns);
            assert_eq!(counts.state, naive.state, "{at}: state of event group {index}");
            assert_eq!(counts.values, naive.values, "{at}: values of event group {index}");
            let expected = (naive.enabled_ns, naive.running_ns);
            assert_eq!(times, expected, "{at}: times of event group {index}");
            assert!(counts.state != State::Error || counts.scaled(0).is_none(), "{at}");
        }
    }
}

fn key(group: usize) -> GroupKey {
    // Keys do not start at 0, so that a confusion with indices shows.
    GroupKey(1000 - group as u64)
}

/// Returns a group and its ancestors; nothing for an index beyond the last group.
fn chain(group: usize) -> Vec<GroupKey> {
    let mut chain = Vec::new();
    let mut at = Some(group).filter(|&group| group < PARENTS.len());
    while let Some(group) = at {
        chain.push(key(group));
        at = (group != 0).then(|| PARENTS[group]);
    }
    chain
}

fn kinds() -> [EventKind; 6] {
    [
        EventKind::Hardware(0),
        EventKind::Hardware(1),
        EventKind::Hardware(4),
        EventKind::Software(1),
        EventKind::Software(2),
        EventKind::Raw(0x1a8),
    ]
}
