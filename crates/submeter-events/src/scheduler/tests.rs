//! What only this crate can see of a scheduler.

use super::*;
use crate::{SimulatedPmu, parse};

const ROOT: GroupKey = GroupKey(0);

/// The groups of a tree, each with its ancestors, the root last.
const CHAINS: &[&[u64]] =
    &[&[1, 0], &[2, 1, 0], &[3, 2, 1, 0], &[4, 2, 1, 0], &[5, 1, 0], &[6, 0], &[8, 7, 6, 0], &[0]];

/// Returns a scheduler with one event for each group, two of which belong to no tree, and one for
/// all groups.
fn scheduler() -> Scheduler<SimulatedPmu> {
    let mut events = Scheduler::new(SimulatedPmu::new(16));
    let cycles = &parse("cycles").expect("valid")[0];
    let scopes = (0..=10).map(|group| Scope::Group(GroupKey(group)));
    for scope in scopes.chain([Scope::Everywhere]) {
        events.attach(scope, cycles, 0).expect("supported");
    }
    events
}

/// Returns the groups of `chain`, each with its depth.
fn path(chain: &[u64]) -> impl Iterator<Item = (GroupKey, usize)> {
    let depths = (0..chain.len()).rev();
    chain.iter().map(|&group| GroupKey(group)).zip(depths)
}

/// Returns how often `act` programs or reads counters.
fn operations(
    events: &mut Scheduler<SimulatedPmu>,
    act: impl FnOnce(&mut Scheduler<SimulatedPmu>),
) -> u64 {
    let before = events.pmu().operations();
    act(events);
    events.pmu().operations() - before
}

#[test]
fn a_switch_along_a_path_leaves_common_ancestors() {
    let mut events = scheduler();
    let [x, y, parent] = [CHAINS[2], CHAINS[3], CHAINS[1]];
    events.switch_along(path(x), ROOT, 1);
    let sibling = operations(&mut events, |events| events.switch_along(path(y), ROOT, 2));
    assert_eq!(sibling, 4, "one is taken off and read, one is put on and read");
    let same = operations(&mut events, |events| events.switch_along(path(y), ROOT, 3));
    assert_eq!(same, 0);
    let parent = operations(&mut events, |events| events.switch_along(path(parent), ROOT, 4));
    assert_eq!(parent, 2, "nothing is entered");
}

/// From each group, and from none, to each: sessions switch along paths, tests of the rules by
/// chains.
#[test]
fn a_switch_along_a_path_equals_one_to_a_chain() {
    let (mut by_path, mut by_chain) = (scheduler(), scheduler());
    const FOREIGN: &[u64] = &[11, 10, 9];
    let places: Vec<&[u64]> = CHAINS.iter().copied().chain([&[][..], FOREIGN]).collect();
    let mut now_ns = 0;
    for from in &places {
        for to in [from, &places[0], from].into_iter().chain(&places) {
            for chain in [*from, *to] {
                now_ns += 1;
                let known: Vec<GroupKey> = match chain {
                    FOREIGN => Vec::new(),
                    chain => chain.iter().map(|&group| GroupKey(group)).collect(),
                };
                let expected = operations(&mut by_chain, |events| events.switch(&known, now_ns));
                let found = operations(&mut by_path, |events| {
                    events.switch_along(path(chain), ROOT, now_ns);
                });
                assert_eq!(found, expected, "{from:?} to {to:?}");
            }
        }
    }
}

// A test instead of an assertion in the program, because another compiler may use a different
// layout, which works as well.
#[cfg(target_pointer_width = "64")]
#[test]
fn switched_parts_have_their_documented_size() {
    assert_eq!((size_of::<EventSlot>(), size_of::<queues::EventQueue>()), (128, 64));
}
