//! The program's own value that a group keeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use submeter::{Group, Schema, Tree};

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("nothing to refuse")).expect("address space")
}

/// If several threads want a value at once, one makes it and all have the same.
#[test]
fn one_of_several_threads_makes_data() {
    const THREADS: usize = 4;
    let tree = tree();
    for round in 0..if cfg!(miri) { 5 } else { 300 } {
        let group = tree.create(&format!("/{round}")).expect("room");
        let (start, made) = (Barrier::new(THREADS), AtomicUsize::new(0));
        let make = |value: usize| {
            start.wait();
            // Relaxed: read after the threads have ended.
            let count = || made.fetch_add(1, Ordering::Relaxed);
            group.data_or_init(|| (count(), value.to_string()).1).expect("it lives")
        };
        let make = &make;
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || make(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(seen.iter().all(|value| Arc::ptr_eq(value, &seen[0])), "{seen:?}");
    }
}

/// A killed group loses its value, and its successor begins without one.
#[test]
fn data_ends_with_its_group() {
    let tree = tree();
    let old = tree.create("/a").expect("room");
    assert_eq!(old.data_or_init(|| 1).ok().as_deref(), Some(&1));
    assert_eq!(old.data_or_init(|| 2).ok().as_deref(), Some(&1), "made once");
    let killed = old.kill().expect("no children");
    assert_eq!(
        (killed.data::<i32>().as_deref(), old.data::<i32>().as_deref()),
        (Some(&1), Some(&1))
    );
    let new = tree.create("/a").expect("the name is free");
    assert_eq!(new.data::<i32>(), None);
    assert_eq!(new.data_or_init(|| 2).ok().as_deref(), Some(&2));
    assert!(killed.released_blocking(Duration::ZERO).is_err(), "`old` holds it");
    assert_eq!((killed.data::<i32>(), old.data::<i32>()), (None, None));
    assert!(old.data_or_init(|| 3).expect_err("killed").is_killed());
    // Even if it had none before.
    let late = tree.create("/b").expect("room");
    late.kill().expect("no children");
    assert!(late.data_or_init(|| 3).expect_err("killed").is_killed());
}

/// A value of another type is refused, not replaced.
#[test]
fn data_of_another_type_is_refused() {
    let tree = tree();
    let group = tree.create("/a").expect("room");
    group.data_or_init(|| 1u8).expect("the first");
    let refused = group.data_or_init(|| 1u16).expect_err("of another type");
    assert!(refused.is_other_type(), "{refused}");
    assert_eq!((group.data::<u16>(), group.data::<u8>().as_deref()), (None, Some(&1)));
}

/// A panic while a value is made leaves room for another.
#[test]
fn data_is_made_after_a_panic() {
    let tree = tree();
    let group = tree.create("/a").expect("room");
    let panics = || group.data_or_init(|| -> u8 { panic!("no value") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(group.data_or_init(|| 1u8).ok().as_deref(), Some(&1));
}

/// A value with a handle to its own group, and a number.
struct Tenant(Group, usize);

/// Values that hold their own groups keep none alive: not after a kill, of one or of many, and not
/// after the end of the tree.
#[test]
fn data_may_hold_its_own_group() {
    let tree = tree();
    let root = tree.root().clone();
    let paths = ["/one", "/all", "/all/of", "/all/of/them", "/left"];
    let make = |path| {
        let group = tree.get_or_create(path).expect("room");
        group.data_or_init(|| Arc::new(Tenant(group.clone(), 0))).expect("alive")
    };
    let tenants = paths.map(|path| Arc::downgrade(&make(path)));
    root.data_or_init(|| Tenant(root.clone(), 0)).expect("alive");
    let lives = || tenants.each_ref().map(|tenant| tenant.strong_count() > 0);
    assert_eq!(lives(), [true; 5], "their groups own them");
    let killed = tree.get("/one").expect("made above").kill().expect("no children");
    assert!(!killed.is_released());
    killed.released_blocking(Duration::ZERO).expect("only its value held it");
    assert_eq!(lives(), [false, true, true, true, true]);
    drop(tree.get("/all").expect("made above").kill_subtree().expect("alive"));
    assert_eq!(lives(), [false, false, false, false, true]);
    drop(tree);
    assert_eq!(lives(), [false; 5]);
    assert!(root.data::<Tenant>().is_none());
}

/// A kill that comes while a value is made is not too early for it: the value is dropped, and its
/// group released. Or it is too late to make one.
#[test]
fn data_made_amid_a_kill_ends_stress() {
    let tree = tree();
    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
        let group = tree.create("/a").expect("the name is free");
        let start = Barrier::new(2);
        let killed = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let own = group.clone();
                start.wait();
                let made = group.data_or_init(move || Tenant(own, round));
                made.is_ok_and(|made| made.0 == group && made.1 == round)
            });
            start.wait();
            let killed = group.kill().expect("no children");
            let is_made = maker.join().expect("no panic");
            assert_eq!(killed.data::<Tenant>().is_some(), is_made);
            killed
        });
        drop(group);
        killed.released_blocking(Duration::from_secs(30)).expect("nothing holds it");
    }
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
