//! Groups are set up before any lookup finds them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use submeter::{Bytes, Group, OnCreate, Quota, Schema, Tree};

use crate::stop::StopOnDrop;

fn tree() -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    let memory = schema.quota("memory", "Memory held");
    (Tree::new(schema.build().expect("sound")).expect("memory"), memory)
}

struct Limit(Quota<Bytes>, u64);

impl OnCreate for Limit {
    fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
        group.set_limit(self.0, Some(self.1));
        publish();
    }
}

/// Calls `publish` this many times, and counts the groups.
struct Publish(usize, AtomicUsize);

impl OnCreate for Publish {
    fn create(&self, _: &Group, publish: &mut dyn FnMut()) {
        self.1.fetch_add(1, Ordering::Relaxed);
        (0..self.0).for_each(|_| publish());
    }
}

#[test]
fn nobody_finds_a_group_before_it_is_set_up() {
    let (tree, memory) = tree();
    let limit = Arc::new(Limit(memory, 1000));
    tree.on_create(&limit);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = StopOnDrop(&stop);
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut found = 0;
                while !stop.load(Ordering::Relaxed) || found == 0 {
                    let group = match found % 2 {
                        0 => tree.get("/a"),
                        _ => tree.get_or_create("/a").ok(),
                    };
                    let Some(group) = group else { continue };
                    assert_eq!(group.usage(memory).limit, Some(1000));
                    assert!(group.try_charge(memory, 1001).is_err());
                    found += 1;
                }
            })
        });
        for _ in 0..2_000 {
            let _ = tree.get_or_create("/a").expect("room").kill();
        }
        let _last = tree.get_or_create("/a");
        drop(guard);
        for reader in readers {
            reader.join().expect("all were limited");
        }
    });
}

/// Each of several hooks sets up a group once, however often it publishes.
#[test]
fn each_hook_sets_up_a_group_once() {
    let (tree, memory) = tree();
    let hooks = [0, 1, 3].map(|times| Arc::new(Publish(times, AtomicUsize::new(0))));
    hooks.iter().for_each(|hook| tree.on_create(hook));
    let limit = Arc::new(Limit(memory, 10));
    tree.on_create(&limit);
    let group = tree.get_or_create("/a/b").expect("room");
    assert_eq!(tree.get("/a/b"), Some(group));
    assert_eq!(hooks.each_ref().map(|hook| hook.1.load(Ordering::Relaxed)), [2; 3]);
    drop(limit);
    let later = tree.create("/c").expect("room");
    assert_eq!(later.usage(memory).limit, None, "the hook is gone");
}

#[test]
fn a_group_whose_hook_panics_is_not_created() {
    struct Fails;
    impl OnCreate for Fails {
        fn create(&self, _: &Group, _: &mut dyn FnMut()) {
            resume_unwind(Box::new("the user's"));
        }
    }
    let (tree, _) = tree();
    let fails = Arc::new(Fails);
    tree.on_create(&fails);
    assert!(catch_unwind(AssertUnwindSafe(|| tree.create("/a"))).is_err());
    assert_eq!((tree.get("/a"), tree.root().child_count()), (None, 0));
    drop(fails);
    tree.create("/a").expect("the name is free");
    tree.flush();
    assert_eq!(tree.group_count(), 2, "the root and /a");
}

/// A hook that panics after publishing leaves a group that is set up, and leaves no lock held.
#[test]
fn a_panic_after_publishing_leaves_the_group() {
    struct Fails;
    impl OnCreate for Fails {
        fn create(&self, _: &Group, publish: &mut dyn FnMut()) {
            publish();
            resume_unwind(Box::new("the user's"));
        }
    }
    let (tree, memory) = tree();
    let (fails, limit) = (Arc::new(Fails), Arc::new(Limit(memory, 10)));
    tree.on_create(&fails);
    tree.on_create(&limit);
    assert!(catch_unwind(AssertUnwindSafe(|| tree.create("/a"))).is_err());
    let group = tree.get("/a").expect("published");
    assert_eq!(group.usage(memory).limit, Some(10));
    group.kill().expect("no lock is held, and it is alive");
    drop((group, fails));
    tree.flush();
    assert_eq!(tree.group_count(), 1, "the root");
}

/// A hook that catches another's panic does not publish a group that is only half set up.
#[test]
fn a_caught_panic_publishes_nothing_unfinished() {
    struct Catches;
    impl OnCreate for Catches {
        fn create(&self, _: &Group, publish: &mut dyn FnMut()) {
            let _ = catch_unwind(AssertUnwindSafe(publish));
        }
    }
    struct Fails(AtomicBool);
    impl OnCreate for Fails {
        fn create(&self, _: &Group, _: &mut dyn FnMut()) {
            if self.0.load(Ordering::Relaxed) {
                resume_unwind(Box::new("the user's"));
            }
        }
    }
    let (tree, _) = tree();
    let (catches, fails) = (Arc::new(Catches), Arc::new(Fails(AtomicBool::new(true))));
    tree.on_create(&catches);
    tree.on_create(&fails);
    assert!(catch_unwind(AssertUnwindSafe(|| tree.create("/a"))).is_err(), "as without the other");
    assert_eq!(tree.get("/a"), None);
    fails.0.store(false, Ordering::Relaxed);
    tree.create("/a").expect("the name is free");
}
