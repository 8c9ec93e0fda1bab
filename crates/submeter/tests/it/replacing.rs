//! Charges that take the place of others.

use submeter::{Bytes, Quota, Schema, Tree};

fn tree() -> (Tree, [Quota<Bytes>; 2]) {
    let mut schema = Schema::builder();
    let quotas = ["memory", "disk"].map(|name| schema.quota::<Bytes>(name, "Held"));
    (Tree::new(schema.build().expect("valid")).expect("room"), quotas)
}

/// Only the difference needs room, and a refusal leaves the old charge as it is.
#[test]
fn only_the_difference_needs_room() {
    let (tree, [memory, _]) = tree();
    let acme = tree.create("/acme").expect("new");
    acme.set_limit(memory, Some(100));
    let mut old = acme.try_charge_replacing(memory, 60, None).expect("room");
    let mut new = acme.try_charge_replacing(memory, 100, Some(&mut old)).expect("40 more");
    assert_eq!((old.amount(), new.amount(), acme.usage(memory).current), (0, 100, 100));
    acme.try_charge_replacing(memory, 101, Some(&mut new)).expect_err("one too many");
    assert_eq!((new.amount(), acme.usage(memory).current), (100, 100));
    let least = acme.try_charge_replacing(memory, 10, Some(&mut new)).expect("less");
    drop((old, new));
    assert_eq!((least.amount(), acme.usage(memory).current), (10, 10));
}

/// A charge of another group or quota is not replaced: it stays, and the new one is its owner's.
#[test]
fn a_charge_of_another_owner_is_not_replaced() {
    let (tree, [memory, disk]) = tree();
    let mine = tree.get_or_create("/acme/web").expect("new");
    let parent = mine.parent().expect("/acme").clone();
    let [child, neighbour] =
        ["/acme/web/img", "/zeta"].map(|path| tree.get_or_create(path).expect("new"));
    let others = [(&parent, memory), (&child, memory), (&neighbour, memory), (&mine, disk)];
    for (owner, quota) in others {
        let mut old = owner.try_charge(quota, 30).expect("no limit");
        let held = mine.usage(memory).current;
        let new = mine.try_charge_replacing(memory, 40, Some(&mut old)).expect("no limit");
        assert_eq!((old.amount(), old.group()), (30, owner));
        assert_eq!((new.amount(), new.group()), (40, &mine));
        assert_eq!(mine.usage(memory).current, held + 40, "of {owner}");
    }
    mine.set_limit(memory, Some(10));
    let mut old = neighbour.try_charge(memory, 30).expect("no limit");
    mine.try_charge_replacing(memory, 20, Some(&mut old)).expect_err("over the limit");
    assert_eq!((old.amount(), mine.usage(memory).current), (30, 0));
}

/// A charge of a killed group is not its successor's, although their paths are the same.
#[test]
fn a_predecessors_charge_is_not_replaced() {
    let (tree, [memory, _]) = tree();
    let dead = tree.create("/acme").expect("new");
    let mut old = dead.try_charge(memory, 30).expect("no limit");
    dead.kill().expect("no children");
    let acme = tree.create("/acme").expect("the name is free");
    let new = acme.try_charge_replacing(memory, 40, Some(&mut old)).expect("no limit");
    assert_eq!((old.amount(), dead.usage(memory).current), (30, 30));
    assert_eq!((new.amount(), acme.usage(memory).current), (40, 40));
}
