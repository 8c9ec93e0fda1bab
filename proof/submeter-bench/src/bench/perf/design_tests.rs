use submeter::perf::{EventKind, parse};
use submeter_events::{Counts, EventGroupId, SimulatedPmu, State};

use super::*;

/// The document's setup: six siblings, their parent and the whole system, with two ungrouped events
/// each.
const PARENT: GroupKey = GroupKey(5000);
const SIBLINGS: u64 = 6;

fn documents_scopes() -> Vec<Scope> {
    let siblings = (1..=SIBLINGS).map(|sibling| Scope::Group(GroupKey(sibling)));
    siblings.chain([Scope::Group(PARENT), Scope::Everywhere]).collect()
}

fn attach_all(design: &mut dyn Design, scopes: &[Scope], events: &str) {
    for &scope in scopes {
        for group in parse(events).expect("valid") {
            design.attach(scope, &group, 0).expect("simulated CPUs count everything");
        }
    }
}

fn chain(sibling: u64) -> [GroupKey; 2] {
    [GroupKey(sibling), PARENT]
}

/// Returns the PMU's operations and the visited event groups of one switch between siblings.
fn work_of(system_wide: SystemWide, scopes: &[Scope]) -> (u64, u64) {
    let mut design = Filtered::new(SimulatedPmu::new(64), system_wide);
    attach_all(&mut design, scopes, "cycles,instructions");
    design.switch(&chain(1), 10);
    let before = (design.pmu.operations(), design.visits);
    design.switch(&chain(2), 20);
    (design.pmu.operations() - before.0, design.visits - before.1)
}

/// A switch of the baselines does the work that the document describes.
#[test]
fn baseline_switches_do_the_documents_work() {
    let scopes = documents_scopes();
    // An event that is removed and one that is placed are both read and programmed: 4 operations
    // per pair.
    let pair = 4;
    // Sibling, parent and system-wide have two events each; each of the 16 is visited twice.
    assert_eq!(work_of(SystemWide::Switched, &scopes), (6 * pair, 32));
    // The two system-wide events stay.
    assert_eq!(work_of(SystemWide::LeftAlone, &scopes), (4 * pair, 32));

    let mut scheduler = Scheduler::new(SimulatedPmu::new(64));
    attach_all(&mut scheduler, &scopes, "cycles,instructions");
    Design::switch(&mut scheduler, &chain(1), 10);
    let before = scheduler.pmu().operations();
    Design::switch(&mut scheduler, &chain(2), 20);
    // The parent's events stay too.
    assert_eq!(scheduler.pmu().operations() - before, 2 * pair);
}

#[test]
fn the_baselines_visit_the_events_of_all_groups() {
    let many: Vec<Scope> = (1..=1000).map(|group| Scope::Group(GroupKey(group))).collect();
    let (operations, visits) = work_of(SystemWide::LeftAlone, &many);
    assert_eq!((operations, visits), (8, 4000));
}

#[test]
fn a_switch_to_the_same_group_does_nothing() {
    let mut design = Filtered::new(SimulatedPmu::new(64), SystemWide::Switched);
    attach_all(&mut design, &documents_scopes(), "cycles");
    design.switch(&chain(1), 10);
    let before = (design.pmu.operations(), design.visits);
    design.switch(&chain(1), 20);
    assert_eq!((design.pmu.operations(), design.visits), before);
}

/// A pinned event without a counter fails; a flexible one waits.
#[test]
fn without_a_counter_pinned_events_fail() {
    let mut design = Filtered::new(SimulatedPmu::new(1), SystemWide::Switched);
    attach_all(&mut design, &[Scope::Everywhere], "{cycles,instructions}:D,cycles,instructions");
    design.switch(&chain(1), 10);
    assert!(design.pinned[0].failed);
    let placed: Vec<bool> = design.flexible.iter().map(Listed::is_placed).collect();
    assert_eq!(placed, [true, false]);
    design.switch(&[], 30);
    assert_eq!(design.flexible[1].enabled.since_ns, Some(0), "it could have counted all the time");
}

/// A script of switches, the same for all.
fn script() -> impl Iterator<Item = (Vec<GroupKey>, u64)> {
    let mut rng = fastrand::Rng::with_seed(7);
    (0..2000).map(move |_| {
        let next = match rng.u64(..SIBLINGS + 2) {
            0 => Vec::new(),
            sibling @ 1..=SIBLINGS => chain(sibling).to_vec(),
            _ => vec![PARENT],
        };
        (next, rng.u64(..100))
    })
}

/// Values and times of each event group, without intervals that are still open.
type Found = Vec<(Vec<u64>, u64, u64)>;

fn of_filtered(system_wide: SystemWide) -> Found {
    let mut design = Filtered::new(SimulatedPmu::new(64), system_wide);
    attach_all(&mut design, &documents_scopes(), "cycles,{instructions,task-clock},branches:D");
    let mut now_ns = 0;
    for (next, ns) in script() {
        happen(&mut design.pmu, ns);
        now_ns += ns;
        design.switch(&next, now_ns);
    }
    // In the order in which they were attached: within a scope flexible, flexible, pinned.
    let mut found = Vec::new();
    let (mut pinned, mut flexible) = (design.pinned, design.flexible);
    let pmu = &mut design.pmu;
    for listed in flexible.iter_mut().chain(&mut pinned) {
        if listed.is_placed() {
            listed.remove(pmu, now_ns);
        }
        listed.enabled.close(now_ns);
        let values = listed.values.iter().map(|(value, _)| *value).collect();
        found.push((values, listed.enabled.sum_ns, listed.running.sum_ns));
    }
    found
}

fn of_scheduler() -> Found {
    let mut scheduler = Scheduler::new(SimulatedPmu::new(64));
    let (mut flexible, mut pinned) = (Vec::<EventGroupId>::new(), Vec::new());
    for scope in documents_scopes() {
        for group in parse("cycles,{instructions,task-clock},branches:D").expect("valid") {
            let id = scheduler.attach(scope, &group, 0).expect("simulated");
            if group.is_pinned() { &mut pinned } else { &mut flexible }.push(id);
        }
    }
    let mut now_ns = 0;
    for (next, ns) in script() {
        happen(scheduler.pmu_mut(), ns);
        now_ns += ns;
        Design::switch(&mut scheduler, &next, now_ns);
    }
    let ids = flexible.into_iter().chain(pinned);
    let counts = ids.map(|id| scheduler.detach(id, now_ns).expect("attached"));
    let found = |counts: Counts| {
        assert_ne!(counts.state, State::Error);
        (counts.values, counts.enabled_ns, counts.running_ns)
    };
    counts.map(found).collect()
}

fn happen(pmu: &mut SimulatedPmu, ns: u64) {
    for (kind, rate) in [
        (EventKind::Hardware(0), 3),
        (EventKind::Hardware(1), 5),
        (EventKind::Hardware(4), 2),
        (EventKind::Software(1), 1),
    ] {
        pmu.count(kind, rate * ns);
    }
}

#[test]
fn all_designs_count_the_same() {
    let expected = of_scheduler();
    assert!(expected.iter().all(|(values, ..)| values.iter().all(|&value| value > 0)));
    for system_wide in [SystemWide::Switched, SystemWide::LeftAlone] {
        assert_eq!(of_filtered(system_wide), expected, "{system_wide:?}");
    }
}
