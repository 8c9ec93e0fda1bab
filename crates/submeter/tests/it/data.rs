//! The program's own value that a group keeps.

use std::sync::{Arc, Barrier, Weak};

use submeter::{Group, Schema, Tree};

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("nothing to refuse")).expect("address space")
}

/// If several threads set data at once, one succeeds and all see its value.
#[test]
fn one_of_several_threads_sets_data() {
    const THREADS: usize = 4;
    let tree = tree();
    for round in 0..if cfg!(miri) { 5 } else { 300 } {
        let group = tree.create(&format!("/{round}")).expect("room");
        let start = Barrier::new(THREADS);
        let set = |value: usize| {
            start.wait();
            let refused = group.set_data(value.to_string()).err();
            assert!(refused.as_ref().is_none_or(|mine| *mine == value.to_string()));
            (refused.is_none(), group.data::<String>().cloned().expect("one of them has set it"))
        };
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || set(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let winner = seen.iter().position(|(won, _)| *won).expect("one wins");
        assert_eq!(seen.iter().filter(|(won, _)| *won).count(), 1);
        assert!(seen.iter().all(|(_, value)| *value == winner.to_string()), "{seen:?}");
    }
}

/// A killed group keeps its data and its successor has none.
#[test]
fn a_killed_group_keeps_its_data_for_itself() {
    let tree = tree();
    let old = tree.create("/a").expect("room");
    assert!(old.set_data(1).is_ok());
    old.kill().expect("no children");
    assert_eq!(old.data::<i32>(), Some(&1));
    let new = tree.create("/a").expect("the name is free");
    assert_eq!(new.data::<i32>(), None);
    assert!(new.set_data(2).is_ok());
    assert_eq!((old.data::<i32>(), new.data::<i32>()), (Some(&1), Some(&2)));
    // Even if it had none before.
    let late = tree.create("/b").expect("room");
    late.kill().expect("no children");
    assert!(late.set_data(3).is_ok());
    assert_eq!(late.data::<i32>(), Some(&3));
}

/// Data that refers weakly to the holder of the group's handle leads to it and keeps nothing alive.
#[test]
fn data_with_a_weak_reference_back_ends() {
    struct Tenant(Group);
    let tree = tree();
    let tenant = Arc::new(Tenant(tree.create("/a").expect("room")));
    assert!(tenant.0.set_data(Arc::downgrade(&tenant)).is_ok());
    let found = tree.get("/a").and_then(|group| group.data::<Weak<Tenant>>()?.upgrade());
    assert_eq!(found.expect("it lives").0.path(), "/a");
    let killed = tenant.0.kill().expect("no children");
    assert!(!killed.is_released());
    drop(tenant);
    assert!(killed.is_released());
}

#[test]
fn unsorted_children_are_the_same_as_sorted() {
    let tree = tree();
    assert!(tree.root().children_unsorted().is_empty());
    let names = || (0..100).map(|n| format!("{n:02}"));
    for name in names() {
        tree.root().create_child(&name).expect("room");
    }
    tree.get("/42").expect("made").kill().expect("no children");
    let mut found = tree.root().children_unsorted();
    found.sort();
    assert_eq!(found, tree.root().children());
    assert!(found.iter().map(Group::name).eq(names().filter(|name| name != "42")));
}
