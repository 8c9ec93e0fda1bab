//! Updates of groups in children of a fork.
#![cfg(not(miri))]

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

use submeter::export::Export;
use submeter::{Count, Counter, Group, Metrics, Schema, SchemaBuilder, Tree};

#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;

/// Lets one test run at a time: groups of all trees take their counts from one allocator, whose
/// lock a thread of the other test might hold at a fork.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that is forked amid updates flushes and reads its own copy.
///
/// The parent's other threads are in the middle of updates. The child has all updates that had
/// returned, counts separately, and changes nothing for the parent.
///
/// An update in progress at the fork may or may not be in the child: the kernel copies one page
/// after the other while threads run.
#[test]
fn a_child_forked_in_updates_has_its_copy_stress() {
    let _alone = alone();
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let tree = Tree::new(schema.build().expect("good names")).expect("a tree");
    let leaf = tree.get_or_create("/tenant/leaf").expect("room");
    let own = tree.get_or_create("/tenant/own").expect("room");
    let returned = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for returned in &returned {
            scope.spawn(|| {
                // Relaxed: only ends the loop.
                while !stop.load(Ordering::Relaxed) {
                    leaf.add(requests, 1);
                    // Release: after the add; pairs with the Acquire below.
                    returned.fetch_add(1, Ordering::Release);
                }
            });
        }
        let mut failed = None;
        for round in 0..100 {
            own.add(requests, 1);
            // Acquire: pairs with the Release above.
            let before: u64 = returned.iter().map(|n| n.load(Ordering::Acquire)).sum();
            let passed = fork::in_a_fork(|| {
                let found = leaf.sum(requests);
                leaf.add(requests, 5);
                own.add(requests, 7);
                let more = leaf.sum(requests);
                let root = tree.root().sum(requests);
                let mine = own.sum(requests);
                let killed = own.kill().is_ok() && tree.create("/child only").is_ok();
                found >= before
                    && more >= found + 5
                    && mine == round + 8
                    && root == more + mine
                    && killed
                    && tree.root().sum(requests) == root
            });
            if !passed {
                failed = Some(round);
                break;
            }
            // Marks are set and cleared between the forks.
            tree.flush();
        }
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the round whose child failed");
    });
    // Relaxed: all threads were joined.
    let returned: u64 = returned.iter().map(|n| n.load(Ordering::Relaxed)).sum();
    assert_eq!((leaf.sum(requests), own.sum(requests)), (returned, 100));
    assert!(!own.is_killed() && tree.get("/child only").is_none(), "only the child changed");
}

/// Flushes, creates, kills and copies the tree, until it is told to stop.
fn take_locks(
    tree: &Tree,
    leaves: &[Group],
    requests: Counter<Count>,
    thread: usize,
    stop: &AtomicBool,
) {
    // Relaxed: only ends the loop.
    for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
        leaves[n % 8].add(requests, 300);
        let passing = tree.get_or_create(&format!("/k{thread}/{}", n % 5)).expect("room");
        passing.add(requests, 1);
        passing.kill().expect("no children");
        tree.flush();
        if n % 16 == 0 {
            drop(tree.snapshot());
        }
    }
}

/// A child that is forked amid flushes and kills continues, or is told why it cannot.
///
/// The parent's other threads flush, create, kill and copy the tree: at a fork they may hold any of
/// its locks, and the child has no such threads. Every call of the child succeeds or panics with
/// the reason; none hangs.
#[test]
fn a_child_forked_in_flushes_goes_on_stress() {
    let _alone = alone();
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let tree = Tree::new(schema.build().expect("good names")).expect("a tree");
    let leaves: Vec<Group> =
        (0..8).map(|n| tree.get_or_create(&format!("/a/{n}")).expect("room")).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (tree, leaves, stop) = (&tree, &leaves, &stop);
            scope.spawn(move || take_locks(tree, leaves, requests, thread, stop));
        }
        // By which a child says whether it has found a lock of a thread that it lacks.
        let (mut hears, says) = io::pipe().expect("a pipe");
        let (mut forks, mut failed, mut met) = (0, None, false);
        // Until one has.
        while failed.is_none() && (forks < FORKS_OF_FLUSHES || !met && forks < 100) {
            let found = Cell::new(0);
            let passed = fork::in_a_fork(|| {
                let told = |work: &dyn Fn() -> bool| match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(right) => right,
                    Err(why) => {
                        found.set(1);
                        message(&*why).contains("was forked")
                    }
                };
                // Updates and reads continue in any case.
                let before = leaves[0].read(requests);
                leaves.iter().for_each(|leaf| leaf.add(requests, 3));
                let went_on = leaves[0].read(requests).value >= before.value;
                let sums = told(&|| {
                    let children: u64 = leaves.iter().map(|leaf| leaf.sum(requests)).sum();
                    tree.get("/a").is_none_or(|a| a.sum(requests) == children)
                });
                let lives = told(&|| {
                    let group = tree.get_or_create("/new/one").expect("room");
                    group.add(requests, 1);
                    group.kill().is_ok() && tree.snapshot().groups().len() >= 10
                });
                let says_so = (&says).write_all(&[found.get()]).is_ok();
                went_on && sums && lives && says_so
            });
            let mut one = [0];
            if passed && hears.read_exact(&mut one).is_ok() {
                met |= one == [1];
            } else {
                failed = Some(forks);
            }
            forks += 1;
        }
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the fork whose child failed, or did not end");
        assert!(met, "no child found a lock held");
    });
}

/// What libraries add to an existing tree.
struct Set<const N: usize>(Counter<Count>);

impl<const N: usize> Metrics for Set<N> {
    fn declare(schema: &mut SchemaBuilder) -> Set<N> {
        Set(schema.counter(&format!("set_{N}"), ""))
    }
}

/// A child that is forked amid first updates declares and counts for itself.
///
/// The parent's other threads create groups and update them for the first time. A child declares
/// metrics that the parent has and metrics that it does not, and its groups get words for both, or
/// it is told why not. Nothing changes for the parent.
#[test]
fn a_child_forked_in_first_updates_counts_stress() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("a tree");
    let Set(known) = tree.declare::<Set<0>>().expect("a new name");
    let leaf = tree.get_or_create("/a/leaf").expect("room");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (tree, stop) = (&tree, &stop);
            scope.spawn(move || {
                // Relaxed: only ends the loop.
                while !stop.load(Ordering::Relaxed) {
                    let passing = tree.get_or_create(&format!("/k{thread}/one")).expect("room");
                    passing.inc(known);
                    passing.kill().expect("no children");
                }
            });
        }
        let failed = (0..FORKS).find(|_| {
            !fork::in_a_fork(|| {
                let work = || {
                    let Set(again) = tree.declare::<Set<0>>().expect("known");
                    let Set(new) = tree.declare::<Set<1>>().expect("a new name");
                    let fresh = tree.get_or_create("/a/fresh").expect("room");
                    for group in [&leaf, &fresh] {
                        group.inc(known);
                        group.add(new, 2);
                    }
                    let above = tree.get("/a").expect("made with its child");
                    again == known && (above.sum(known), above.sum(new)) == (2, 4)
                };
                match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(right) => right,
                    Err(why) => message(&*why).contains("was forked"),
                }
            })
        });
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the fork whose child failed, or did not end");
    });
    assert_eq!((leaf.sum(known), tree.schema().metrics().len()), (0, 1), "only children changed");
}

/// Number of forks that a test waits for.
const FORKS: usize = 14;

/// The same for the test whose children usually find a lock held, and wait for it for seconds.
const FORKS_OF_FLUSHES: usize = 5;

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Another thread of the parent makes the data of the same group at the fork. The child finds what
/// was made by then, or makes its own, or is told that it cannot: it does not wait for that thread.
#[test]
fn a_child_forked_amid_data_has_some_stress() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let stop = AtomicBool::new(false);
    let groups: Vec<Group> =
        (0..20_000).map(|n| tree.create(&format!("/{n}")).expect("room")).collect();
    let next = AtomicU64::new(0);
    let passed = thread::scope(|scope| {
        scope.spawn(|| {
            for group in &groups {
                // Relaxed: only ends the loop; and any group will do.
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // Relaxed: as above.
                next.fetch_add(1, Ordering::Relaxed);
                group.data_or_init(|| String::from("the parent's")).expect("alive");
            }
        });
        let passed = (0..100).all(|_| {
            fork::in_a_fork(|| {
                // Relaxed: only this thread is in the child.
                let group = &groups[next.load(Ordering::Relaxed).saturating_sub(1) as usize];
                let make = || group.data_or_init(|| String::from("the child's"));
                match catch_unwind(AssertUnwindSafe(make)) {
                    Ok(Ok(data)) => ["the child's", "the parent's"].contains(&data.as_str()),
                    Ok(Err(_)) => false,
                    Err(panic) => message(&*panic).contains("exec first"),
                }
            })
        });
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        passed
    });
    assert!(passed, "a child's data is neither its own nor the parent's, or it waited");
    let set = groups.iter().filter_map(Group::data::<String>);
    assert!(set.into_iter().all(|data| *data == "the parent's"));
}

/// A child that is forked while a gauge is set or scraped sets it and is told.
///
/// Another thread of the parent sets the gauge, or scrapes, at nearly every fork, and holds a lock
/// that no thread owns in the child. Setting the gauge there has to add what is missing, whatever
/// that thread had added; the state between two scrapes may be half-changed.
#[test]
fn a_child_forked_amid_a_gauge_sets_it_stress() {
    let _alone = alone();
    let mut schema = Schema::builder();
    let depth = schema.gauge::<Count>("depth", "Waiting");
    let tree = Tree::new(schema.build().expect("good names")).expect("a tree");
    let group = tree.create("/acme").expect("room");
    let export = Export::new("app");
    let stop = AtomicBool::new(false);
    // Relaxed: only ends the loops.
    let going = || !stop.load(Ordering::Relaxed);
    let failed = thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..).take_while(|_| going()) {
                group.set(depth, n);
            }
        });
        let failed = (0..FORKS).find(|_| {
            !fork::in_a_fork(|| {
                group.set(depth, -7);
                group.sum(depth) == -7
            })
        });
        scope.spawn(|| {
            while going() {
                export.write(&tree, &mut String::new()).expect("of memory");
            }
        });
        let failed = failed.or_else(|| {
            (FORKS..FORKS + FORKS_OF_FLUSHES).find(|_| {
                !fork::in_a_fork(|| {
                    let mut text = String::new();
                    let scrape = || export.write(&tree, &mut text).is_ok();
                    match catch_unwind(AssertUnwindSafe(scrape)) {
                        Ok(right) => right && text.contains("depth"),
                        Err(why) => message(&*why).contains("was forked"),
                    }
                })
            })
        });
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        failed
    });
    assert_eq!(failed, None, "the fork whose child failed, or did not end");
}

/// A waker that wakes nothing, and records that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        // Relaxed: read by the same thread.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waiters for a kill belong to the parent's runtime, which does not exist in the child.
#[test]
fn a_forked_childs_kill_wakes_no_parents_task() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let group = tree.create("/acme").expect("room");
    let woken = Arc::new(Woken::default());
    // Relaxed: as in `wake`.
    let was_woken = || woken.0.load(Ordering::Relaxed);
    let waker = Waker::from(Arc::clone(&woken));
    let mut waits = pin!(group.killed());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let held = Arc::strong_count(&woken);
    assert!(fork::in_a_fork(|| {
        group.kill().expect("it lives here too");
        !was_woken() && Arc::strong_count(&woken) == held
    }));
    assert!(!was_woken());
    group.kill().expect("it lives");
    assert!(was_woken());
}
