//! What only this crate can see of a scheduler: switches by group, as sessions make them.

use super::*;
use crate::perf::{SimulatedPmu, parse};
use crate::{Schema, Tree};

/// A scheduler that has one event for each of `groups`, and one for all.
fn scheduler(groups: &[Group]) -> Scheduler<SimulatedPmu> {
    let mut events = Scheduler::new(SimulatedPmu::new(16));
    let cycles = &parse("cycles").expect("valid")[0];
    let scopes = groups.iter().map(|group| Scope::Group(GroupKey::of(group)));
    for scope in scopes.chain([Scope::Everywhere]) {
        events.attach(scope, cycles, 0).expect("supported");
    }
    events
}

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("valid")).expect("address space")
}

/// How often `act` programs or reads counters.
fn operations(
    events: &mut Scheduler<SimulatedPmu>,
    act: impl FnOnce(&mut Scheduler<SimulatedPmu>),
) -> u64 {
    let before = events.pmu().operations();
    act(events);
    events.pmu().operations() - before
}

#[test]
fn a_switch_by_group_leaves_common_ancestors_where_they_are() {
    let tree = tree();
    let [x, y] = ["/a/b/x", "/a/b/y"].map(|path| tree.get_or_create(path).expect("created"));
    let root = GroupKey::of(tree.root());
    let mut groups = vec![x.clone(), y.clone()];
    groups.extend(std::iter::successors(x.parent().cloned(), |group| group.parent().cloned()));
    let mut events = scheduler(&groups);
    events.switch_to(Some(&x), root, 1);
    let sibling = operations(&mut events, |events| events.switch_to(Some(&y), root, 2));
    assert_eq!(sibling, 4, "one is taken off and read, one is put on and read");
    let same = operations(&mut events, |events| events.switch_to(Some(&y), root, 3));
    assert_eq!(same, 0);
    let parent = operations(&mut events, |events| events.switch_to(y.parent(), root, 4));
    assert_eq!(parent, 2, "nothing is entered");
}

/// From each group, and from none, to each: sessions switch by group, tests of the rules by keys.
#[test]
fn a_switch_by_group_touches_what_one_by_keys_touches() {
    let (tree, other) = (tree(), tree());
    let paths = ["/a", "/a/b", "/a/b/x", "/a/b/y", "/a/c", "/d", "/d/b/x"];
    let mut groups = paths.map(|path| tree.get_or_create(path).expect("created")).to_vec();
    groups.push(tree.root().clone());
    let root = GroupKey::of(tree.root());
    let (mut by_group, mut by_keys) = (scheduler(&groups), scheduler(&groups));
    let foreign = other.get_or_create("/a/b").expect("created");
    let places: Vec<Option<&Group>> =
        groups.iter().map(Some).chain([None, Some(&foreign)]).collect();
    let (mut now_ns, mut chain) = (0, Vec::new());
    for from in &places {
        for to in [from, &places[0], from].into_iter().chain(&places) {
            for group in [*from, *to] {
                now_ns += 1;
                match group.filter(|group| !std::ptr::eq(*group, &raw const foreign)) {
                    Some(group) => GroupKey::chain_of(group, &mut chain),
                    None => chain.clear(),
                }
                let expected = operations(&mut by_keys, |events| events.switch(&chain, now_ns));
                let found =
                    operations(&mut by_group, |events| events.switch_to(group, root, now_ns));
                assert_eq!(found, expected, "{from:?} to {to:?}");
            }
        }
    }
}

// A test and not an assertion in the program, because another compiler may use a different layout,
// which works as well.
#[cfg(target_pointer_width = "64")]
#[test]
fn the_parts_of_a_group_that_a_switch_touches_have_the_documented_size() {
    assert_eq!((size_of::<EventSlot>(), size_of::<queues::EventQueue>()), (128, 64));
}
