//! The rules of the event scheduler, one test each, on simulated counters.

use submeter_events::{
    Event, EventGroup, EventGroupId, EventKind, GroupKey, Pmu, Scheduler, Scope, SimulatedPmu,
    State, ThreadPmu, parse,
};

const CYCLES: EventKind = EventKind::Hardware(0);
const ROOT: GroupKey = GroupKey(0);
const A: GroupKey = GroupKey(1);
const AX: GroupKey = GroupKey(2);
const AY: GroupKey = GroupKey(3);
const B: GroupKey = GroupKey(4);
const IN_A: &[GroupKey] = &[A, ROOT];
const IN_AX: &[GroupKey] = &[AX, A, ROOT];
const IN_AY: &[GroupKey] = &[AY, A, ROOT];
const IN_B: &[GroupKey] = &[B, ROOT];

/// A scheduler with a clock that advances by ten per step.
struct Thread {
    events: Scheduler<SimulatedPmu>,
    now_ns: u64,
}

impl Thread {
    fn new(counters: usize) -> Thread {
        Thread { events: Scheduler::new(SimulatedPmu::new(counters)), now_ns: 0 }
    }

    fn attach(&mut self, scope: Scope, list: &str) -> EventGroupId {
        let group = &parse(list).expect("valid")[0];
        self.events.attach(scope, group, self.now_ns).expect("supported")
    }

    /// Switches to `chain` and lets `cycles` happen there.
    fn run(&mut self, chain: &[GroupKey], cycles: u64) {
        self.events.switch(chain, self.now_ns);
        self.events.pmu_mut().count(CYCLES, cycles);
        self.now_ns += 10;
    }

    fn value(&mut self, id: EventGroupId) -> u64 {
        self.events.counts(id, self.now_ns).expect("attached").values[0]
    }

    fn state(&mut self, id: EventGroupId) -> State {
        self.events.counts(id, self.now_ns).expect("attached").state
    }
}

/// A parent counts what its children count, plus its own part.
#[test]
fn a_parent_counts_its_own_and_its_childrens() {
    let mut t = Thread::new(8);
    let parent = t.attach(Scope::Group(A), "cycles");
    let x = t.attach(Scope::Group(AX), "cycles");
    let y = t.attach(Scope::Group(AY), "cycles");
    let root = t.attach(Scope::Group(ROOT), "cycles");
    let mut own = 0;
    for step in 0..100 {
        t.run(IN_AX, 3);
        t.run(IN_AY, 5);
        t.run(IN_A, step);
        own += step;
        t.run(IN_B, 7);
        t.run(&[], 11);
    }
    assert_eq!((t.value(x), t.value(y)), (300, 500));
    assert_eq!(t.value(parent), 800 + own);
    assert_eq!(t.value(root), t.value(parent) + 700);
}

#[test]
fn events_for_all_are_not_touched_by_switches() {
    let mut t = Thread::new(4);
    let all = t.attach(Scope::Everywhere, "{cycles,instructions}");
    t.attach(Scope::Group(A), "cycles");
    t.attach(Scope::Group(B), "cycles");
    for _ in 0..1000 {
        t.run(IN_A, 1);
        t.run(IN_B, 1);
    }
    let counts = t.events.counts(all, t.now_ns).expect("attached");
    assert_eq!((counts.values[0], counts.running_ns), (2000, 20_000));
    // Each switch removes one event and places one (4 operations) and does nothing else.
    let before = t.events.pmu().operations();
    t.run(IN_A, 1);
    assert_eq!(t.events.pmu().operations() - before, 4);
}

/// Pinned and flexible events count only in their own group.
#[test]
fn events_count_in_their_group_alone() {
    let mut t = Thread::new(8);
    let lists = ["cycles:D", "cycles"];
    let [in_a, in_ax] = [A, AX].map(|at| lists.map(|list| t.attach(Scope::Group(at), list)));
    for _ in 0..3 {
        for (chain, cycles, used) in [(IN_AX, 3, 4), (IN_B, 5, 0), (IN_A, 7, 2), (&[], 11, 0)] {
            t.run(chain, cycles);
            assert_eq!(t.events.pmu().used(), used, "{chain:?}: nothing else is on a counter");
        }
    }
    let values = [in_a, in_ax].map(|ids| ids.map(|id| t.value(id)));
    assert_eq!(values, [[30, 30], [9, 9]]);
}

#[test]
fn a_switch_to_the_same_group_touches_nothing() {
    let mut t = Thread::new(1);
    t.attach(Scope::Group(A), "cycles");
    t.attach(Scope::Group(AX), "cycles:D");
    t.run(IN_AX, 1);
    let before = t.events.pmu().operations();
    for _ in 0..100 {
        t.run(IN_AX, 1);
    }
    assert_eq!(t.events.pmu().operations(), before);
    t.run(&[], 1);
    let before = t.events.pmu().operations();
    t.run(&[], 1);
    assert_eq!(t.events.pmu().operations(), before);
}

#[test]
fn common_ancestors_stay_where_they_are() {
    let mut t = Thread::new(8);
    let parent = t.attach(Scope::Group(A), "cycles");
    t.attach(Scope::Group(ROOT), "cycles:D");
    t.run(IN_AX, 1);
    let before = t.events.pmu().operations();
    t.run(IN_AY, 1);
    t.run(IN_A, 1);
    t.run(IN_AX, 1);
    assert_eq!(t.events.pmu().operations(), before, "no sibling has events of its own");
    assert_eq!(t.value(parent), 4);
}

#[test]
fn an_event_group_counts_whole_or_not_at_all() {
    let mut t = Thread::new(3);
    let first = t.attach(Scope::Group(A), "{cycles,instructions}");
    let second = t.attach(Scope::Group(A), "{cycles,instructions}");
    t.run(IN_A, 1);
    assert_eq!((t.state(first), t.state(second)), (State::Active, State::Inactive));
    assert_eq!(t.events.pmu().used(), 2, "half a group takes no counter");
    assert!(t.events.rotate(t.now_ns));
    assert_eq!((t.state(first), t.state(second)), (State::Inactive, State::Active));
}

#[test]
fn software_events_need_no_counter() {
    let mut t = Thread::new(0);
    let clock = t.attach(Scope::Group(A), "{task-clock,page-faults}");
    let cycles = t.attach(Scope::Group(A), "cycles");
    let late = t.attach(Scope::Group(A), "context-switches");
    t.run(IN_A, 1);
    assert_eq!(t.state(clock), State::Active);
    assert_eq!(t.state(cycles), State::Inactive);
    assert_eq!(t.state(late), State::Active, "not behind one that waits for a counter");
}

/// Pinned events are placed first, and flexible ones make room for them.
#[test]
fn pinned_events_go_first_flexible_ones_leave() {
    let mut t = Thread::new(2);
    let all = t.attach(Scope::Everywhere, "{cycles,instructions}");
    let flexible = t.attach(Scope::Group(A), "cycles");
    let pinned = t.attach(Scope::Group(A), "cycles:D");
    t.run(IN_B, 1);
    assert_eq!(t.state(all), State::Active);
    t.run(IN_A, 1);
    assert_eq!(t.state(pinned), State::Active);
    assert_eq!(t.state(all), State::Inactive, "both counters are needed, one is left");
    assert_eq!(t.state(flexible), State::Inactive, "its turn is behind the one for all");
    t.events.rotate(t.now_ns);
    assert_eq!((t.state(all), t.state(flexible)), (State::Inactive, State::Active));
    assert_eq!(t.state(pinned), State::Active, "turns are for flexible ones");
}

#[test]
fn a_pinned_event_without_counter_stays_in_error() {
    let mut t = Thread::new(2);
    let root = t.attach(Scope::Group(ROOT), "{cycles,instructions}:D");
    let first = t.attach(Scope::Group(A), "cycles:D");
    let clock = t.attach(Scope::Group(A), "task-clock:D");
    t.run(IN_A, 1);
    assert_eq!((t.state(root), t.state(first)), (State::Active, State::Error));
    // One event's failure does not affect the others in the queue.
    assert_eq!(t.state(clock), State::Active);
    t.events.detach(root, t.now_ns).expect("attached");
    t.run(IN_B, 1);
    t.run(IN_A, 1);
    assert_eq!(t.state(first), State::Error, "there are counters now, but it has missed some");
    let counts = t.events.counts(first, t.now_ns).expect("attached");
    assert_eq!((counts.scaled(0), counts.enabled_ns), (None, 0));
    let again = t.attach(Scope::Group(A), "cycles:D");
    assert_eq!(t.state(again), State::Active);
}

#[test]
fn rotation_starves_nobody() {
    for counters in 1..=4 {
        let mut t = Thread::new(counters);
        let sizes = ["cycles", "{cycles,cycles}", "cycles", "{cycles,cycles,cycles}", "cycles"];
        let scopes = [Scope::Everywhere, Scope::Group(A), Scope::Group(ROOT)];
        let all: Vec<_> = (0..15)
            .map(|index| {
                let members = 1 + sizes[index % 5].matches(',').count();
                (t.attach(scopes[index % 3], sizes[index % 5]), members)
            })
            .collect();
        t.run(IN_A, 1);
        // Every event group that can fit counts within as many periods as there are event groups.
        let mut counted = vec![false; all.len()];
        for _ in 0..all.len() {
            for (index, &(id, _)) in all.iter().enumerate() {
                counted[index] |= t.state(id) == State::Active;
            }
            t.events.rotate(t.now_ns);
            t.run(IN_A, 1);
        }
        for (index, &(id, members)) in all.iter().enumerate() {
            assert_eq!(counted[index], members <= counters, "{counters} counters, {index}");
            let counts = t.events.counts(id, t.now_ns).expect("attached");
            assert!(counts.running_ns <= counts.enabled_ns);
            assert_eq!(counts.scaled(0).is_some(), members <= counters);
        }
    }
}

#[test]
fn a_steady_rate_is_scaled_to_what_was_missed() {
    let mut t = Thread::new(1);
    let both = ["cycles", "cycles"].map(|list| t.attach(Scope::Group(A), list));
    for _ in 0..100 {
        t.run(IN_A, 50);
        t.events.rotate(t.now_ns);
        t.run(IN_B, 1000);
    }
    for id in both {
        let counts = t.events.counts(id, t.now_ns).expect("attached");
        assert_eq!((counts.enabled_ns, counts.running_ns, counts.values[0]), (1000, 500, 2500));
        assert_eq!(counts.scaled(0), Some(5000));
    }
}

#[test]
fn no_rotation_where_all_have_counters() {
    let mut t = Thread::new(4);
    t.attach(Scope::Everywhere, "cycles");
    t.attach(Scope::Group(A), "{cycles,instructions}");
    t.run(IN_A, 1);
    let before = t.events.pmu().operations();
    assert!(!t.events.rotate(t.now_ns));
    assert_eq!(t.events.pmu().operations(), before);
}

#[test]
fn the_last_event_of_a_group_leaves_no_trace() {
    let mut t = Thread::new(4);
    let ids = ["cycles", "cycles:D"].map(|list| t.attach(Scope::Group(A), list));
    t.run(IN_AX, 5);
    assert_eq!(t.events.groups(), 1);
    for id in ids {
        assert_eq!(t.events.detach(id, t.now_ns).expect("attached").values, [5]);
        assert_eq!(t.events.detach(id, t.now_ns), None, "a second time");
    }
    assert_eq!((t.events.groups(), t.events.pmu().used()), (0, 0));
    // Another group reuses the queue while the thread is still in the first one.
    let other = t.attach(Scope::Group(B), "cycles");
    t.run(IN_AY, 5);
    assert_eq!((t.state(other), t.value(other)), (State::Inactive, 0));
    let again = t.attach(Scope::Group(A), "cycles");
    assert_eq!(t.state(again), State::Active);
    t.run(&[], 1);
    assert_eq!(t.value(other), 0);
}

/// An event that takes the place of the last one waits for its own group.
///
/// A group loses its last event while the thread is in it, and another group gets its queue.
#[test]
fn a_replacing_event_waits_for_its_group() {
    let mut t = Thread::new(1);
    let last = t.attach(Scope::Group(A), "cycles");
    t.run(IN_A, 5);
    assert_eq!(t.events.detach(last, t.now_ns).expect("attached").values[0], 5);
    let next = t.attach(Scope::Group(B), "cycles");
    t.events.rotate(t.now_ns);
    t.run(IN_A, 7);
    t.run(&[], 11);
    assert_eq!((t.value(next), t.state(next)), (0, State::Inactive));
    t.run(IN_B, 13);
    assert_eq!((t.value(next), t.state(next)), (13, State::Active));
}

#[test]
fn an_old_name_does_not_find_a_new_event() {
    let mut t = Thread::new(2);
    let old = t.attach(Scope::Group(A), "cycles");
    t.events.detach(old, t.now_ns).expect("attached");
    let new = t.attach(Scope::Group(A), "cycles");
    assert_ne!(old, new);
    assert_eq!(t.events.counts(old, t.now_ns), None);
    assert_eq!(t.events.detach(old, t.now_ns), None);
    assert!(t.events.counts(new, t.now_ns).is_some());
}

#[test]
fn what_is_not_supported_is_said_and_never_zero() {
    let mut t = Thread::new(2);
    t.events.pmu_mut().refuse(EventKind::Raw(0x1a8));
    let group = &parse("{cycles,r1a8}").expect("valid")[0];
    let error = t.events.attach(Scope::Everywhere, group, 0).expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("\"r1a8\" is <not supported> here"), "{text}");
    // The failed event group left no counter occupied.
    t.attach(Scope::Everywhere, "{cycles,instructions}");
    assert_eq!(t.events.pmu().used(), 2);
    let empty = EventGroup::new(Vec::new(), false);
    assert!(t.events.attach(Scope::Everywhere, &empty, 0).is_err());
    // An attached event that never had a turn reads as not counted, which differs from 0.
    let waiting = t.attach(Scope::Everywhere, "cycles");
    t.run(IN_A, 5);
    let counts = t.events.counts(waiting, t.now_ns).expect("attached");
    assert_eq!((counts.scaled(0), counts.enabled_ns), (None, 10));
}

/// A switch costs the same, however many groups have events.
#[test]
fn a_switch_costs_the_same_beside_many_groups() {
    let cost = |groups: u64| {
        let mut t = Thread::new(64);
        for group in 0..groups {
            t.attach(Scope::Group(GroupKey(100 + group)), "{cycles,instructions}");
        }
        let before = t.events.pmu().operations();
        for turn in 0..600 {
            t.run(&[GroupKey(100 + turn % 6), ROOT], 1);
        }
        t.events.pmu().operations() - before
    };
    assert_eq!(cost(6), cost(if cfg!(miri) { 60 } else { 10_000 }));
}

#[test]
fn neither_a_switch_nor_a_rotation_allocates() {
    let mut t = Thread::new(2);
    for list in ["cycles", "{cycles,instructions}", "cycles:D", "task-clock"] {
        for scope in [Scope::Everywhere, Scope::Group(A), Scope::Group(AX), Scope::Group(B)] {
            t.attach(scope, list);
        }
    }
    let deep: Vec<_> = (100..165).map(GroupKey).collect();
    t.attach(Scope::Group(deep[30]), "cycles");
    // The simulated PMU knows a kind of event once it has occurred.
    t.run(IN_A, 1);
    let count = allocation_counter::measure(|| {
        for _ in 0..50 {
            for chain in [IN_A, IN_B, IN_AX, IN_AY, &deep, &[]] {
                t.run(chain, 1);
                t.events.rotate(t.now_ns);
            }
        }
    });
    assert_eq!(count.count_total, 0);
}

#[test]
fn an_event_that_loses_its_counter_is_in_error() {
    let mut t = Thread::new(2);
    let lost = t.attach(Scope::Group(A), "{cycles,task-clock}");
    let kept = t.attach(Scope::Group(A), "task-clock");
    t.run(IN_A, 5);
    t.events.pmu_mut().lose(CYCLES);
    assert_eq!((t.state(lost), t.state(kept)), (State::Error, State::Active));
    t.run(IN_B, 1);
    t.run(IN_A, 1);
    t.events.rotate(t.now_ns);
    assert_eq!((t.state(lost), t.state(kept)), (State::Error, State::Active));
    assert_eq!(t.events.counts(lost, t.now_ns).expect("attached").scaled(0), None);
    // Its counter is free again; an event whose kind has no counter is never placed.
    let next = t.attach(Scope::Group(A), "cycles");
    assert_eq!((t.state(next), t.events.pmu().used()), (State::Inactive, 0));
}

#[test]
fn a_clock_that_goes_back_adds_no_time() {
    let mut t = Thread::new(1);
    let id = t.attach(Scope::Group(A), "cycles");
    t.events.switch(IN_A, 1000);
    t.events.switch(&[], 400);
    let counts = t.events.counts(id, 300).expect("attached");
    assert_eq!((counts.enabled_ns, counts.running_ns), (0, 0));
}

#[test]
fn what_happens_at_a_still_clock_is_counted() {
    let mut t = Thread::new(1);
    let id = t.attach(Scope::Group(A), "cycles");
    t.events.switch(IN_A, t.now_ns);
    assert_eq!(t.events.counts(id, t.now_ns).expect("attached").scaled(0), None);
    t.events.pmu_mut().count(CYCLES, 7);
    t.events.switch(&[], t.now_ns);
    assert_eq!(t.events.counts(id, t.now_ns).expect("attached").scaled(0), Some(7));
}

#[test]
fn whoever_asks_a_threads_clock_is_told_the_time() {
    let mut events = Scheduler::new(ThreadPmu::new());
    let group = &parse("task-clock").expect("valid")[0];
    let everywhere = events.attach(Scope::Everywhere, group, 100).expect("needs nothing");
    let in_a = events.attach(Scope::Group(A), group, 110).expect("needs nothing");
    events.switch(IN_A, 120);
    assert_eq!(events.counts(everywhere, 150).expect("attached").values, [50]);
    assert_eq!(events.counts(in_a, 150).expect("attached").values, [30]);
    assert!(!events.rotate(160), "all have a place");
    let late = events.attach(Scope::Group(A), group, 200).expect("needs nothing");
    let detached = [everywhere, in_a, late].map(|id| events.detach(id, 300).expect("attached"));
    assert_eq!(detached.map(|counts| counts.values[0]), [200, 180, 100]);
}

#[test]
#[should_panic(expected = "at most 65 are allowed")]
fn a_chain_longer_than_a_tree_is_deep_is_refused() {
    let chain: Vec<_> = (0..66).map(GroupKey).collect();
    Thread::new(1).events.switch(&chain, 0);
}

#[test]
#[should_panic(expected = "is not placed")]
fn simulated_counters_cannot_be_read_when_off() {
    let mut pmu = SimulatedPmu::new(1);
    let handle = pmu.prepare(&Event::new(CYCLES)).expect("supported");
    let _ = pmu.read(handle);
}
