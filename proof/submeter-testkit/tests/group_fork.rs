//! Updates of groups in children of a fork.
#![cfg(not(miri))]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use submeter::export::Export;
use submeter::{Count, Counter, Group, Metrics, Schema, SchemaBuilder, Tree};

#[path = "common/beside.rs"]
mod beside;
#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;

use beside::beside;
use met::until_met;

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
    let noted = AtomicU64::new(0);
    let updates = || {
        leaf.add(requests, 1);
        // Release: after the add; pairs with the Acquire below.
        noted.fetch_add(1, Ordering::Release);
    };
    // Acquire: pairs with the Release above.
    let returned = || noted.load(Ordering::Acquire);
    let mut forks = 0;
    beside(&[&updates, &updates], |_| {
        until_met(100, || {
            forks += 1;
            own.add(requests, 1);
            let before = returned();
            let met = fork::found_in_a_fork(|| {
                let found = leaf.sum(requests);
                // An update is in the sum, and its thread has not said that it returned.
                let amid = found > returned();
                leaf.add(requests, 5);
                own.add(requests, 7);
                let more = leaf.sum(requests);
                let root = tree.root().sum(requests);
                let mine = own.sum(requests);
                let killed = own.kill().is_ok() && tree.create("/child only").is_ok();
                let right = found >= before
                    && more >= found + 5
                    && mine == forks + 7
                    && root == more + mine
                    && killed
                    && tree.root().sum(requests) == root;
                right.then_some(amid)
            });
            // Marks are set and cleared between the forks.
            tree.flush();
            met.unwrap_or_else(|| panic!("the child of fork {forks} failed"))
        });
    });
    assert_eq!((leaf.sum(requests), own.sum(requests)), (returned(), forks));
    assert!(!own.is_killed() && tree.get("/child only").is_none(), "only the child changed");
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
    let takes_locks = [0, 1].map(|thread| {
        let (tree, leaves, calls) = (&tree, &leaves, AtomicU64::new(0));
        move || {
            // Relaxed: one thread.
            let n = calls.fetch_add(1, Ordering::Relaxed);
            leaves[n as usize % 8].add(requests, 300);
            let passing = tree.get_or_create(&format!("/k{thread}/{}", n % 5)).expect("room");
            passing.add(requests, 1);
            passing.kill().expect("no children");
            tree.flush();
            if n % 16 == 0 {
                drop(tree.snapshot());
            }
        }
    });
    beside(&[&takes_locks[0], &takes_locks[1]], |_| {
        until_met(FORKS_OF_FLUSHES, || {
            let met = fork::found_in_a_fork(|| {
                // Updates and reads continue in any case.
                let before = leaves[0].read(requests);
                leaves.iter().for_each(|leaf| leaf.add(requests, 3));
                let went_on = leaves[0].read(requests).value >= before.value;
                let sums = or_told(|| {
                    let children: u64 = leaves.iter().map(|leaf| leaf.sum(requests)).sum();
                    tree.get("/a").is_none_or(|a| a.sum(requests) == children)
                })?;
                let lives = or_told(|| {
                    let group = tree.get_or_create("/new/one").expect("room");
                    group.add(requests, 1);
                    group.kill().is_ok() && tree.snapshot().groups().len() >= 10
                })?;
                went_on.then_some(sums || lives)
            });
            met.expect("the child fails, or does not end")
        });
    });
}

/// Returns whether `work` was told that a lock is held by a thread that this child lacks; `None` if
/// it does wrong.
fn or_told(work: impl FnOnce() -> bool) -> Option<bool> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(right) => right.then_some(false),
        Err(why) => message(&*why).contains("was forked").then_some(true),
    }
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
    let paths = ["/k0/one", "/k1/one"];
    let first_updates = paths.map(|path| {
        let tree = &tree;
        move || {
            let passing = tree.get_or_create(path).expect("room");
            passing.inc(known);
            passing.kill().expect("no children");
        }
    });
    beside(&[&first_updates[0], &first_updates[1]], |_| {
        until_met(FORKS, || {
            let amid = Cell::new(false);
            let met = fork::found_in_a_fork(|| {
                let told = or_told(|| {
                    // Created, and not updated yet.
                    let fresh = |path: &&str| tree.get(path).is_some_and(|it| it.sum(known) == 0);
                    amid.set(paths.iter().any(fresh));
                    let Set(again) = tree.declare::<Set<0>>().expect("known");
                    let Set(new) = tree.declare::<Set<1>>().expect("a new name");
                    let fresh = tree.get_or_create("/a/fresh").expect("room");
                    for group in [&leaf, &fresh] {
                        group.inc(known);
                        group.add(new, 2);
                    }
                    let above = tree.get("/a").expect("made with its child");
                    again == known && (above.sum(known), above.sum(new)) == (2, 4)
                })?;
                Some(told || amid.get())
            });
            met.expect("the child fails, or does not end")
        });
    });
    assert_eq!((leaf.sum(known), tree.schema().metrics().len()), (0, 1), "only children changed");
}

/// Number of forks that a test waits for.
const FORKS: u32 = 14;

/// The same for the test whose children usually find a lock held, and wait for it for seconds.
const FORKS_OF_FLUSHES: u32 = 2;

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Another thread of the parent makes the data of the same group at the fork. The child finds what
/// was made by then, or makes its own, or is told that it cannot: it does not wait for that thread.
#[test]
fn a_child_forked_amid_data_has_some_stress() {
    /// More than the thread reaches during a fork.
    const GROUPS_A_FORK: u64 = 500;
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let groups: Vec<Group> =
        (0..20_000).map(|n| tree.create(&format!("/{n}")).expect("room")).collect();
    let (next, end) = (AtomicU64::new(0), AtomicU64::new(0));
    let sets = || {
        // Relaxed, here and below: any group will do.
        let n = next.load(Ordering::Relaxed);
        if let Some(group) = groups.get(n as usize).filter(|_| n < end.load(Ordering::Relaxed)) {
            next.store(n + 1, Ordering::Relaxed);
            group.data_or_init(|| String::from("the parent's")).expect("alive");
        }
    };
    beside(&[&sets], |_| {
        until_met(20, || {
            end.fetch_add(GROUPS_A_FORK, Ordering::Relaxed);
            let met = fork::found_in_a_fork(|| {
                // The first one before the parent has begun.
                let begun = next.load(Ordering::Relaxed);
                let group = &groups[begun.saturating_sub(1) as usize];
                let make = || group.data_or_init(|| String::from("the child's"));
                match catch_unwind(AssertUnwindSafe(make)) {
                    // The parent had begun with this one, and had not made it.
                    Ok(Ok(data)) if *data == "the child's" => Some(begun > 0),
                    Ok(Ok(data)) => (*data == "the parent's").then_some(false),
                    Ok(Err(_)) => None,
                    Err(panic) => message(&*panic).contains("exec first").then_some(true),
                }
            });
            met.expect("a child's data is neither its own nor the parent's, or it waited")
        });
    });
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
    let value = AtomicI64::new(0);
    // Relaxed: one thread.
    let sets = || group.set(depth, value.fetch_add(1, Ordering::Relaxed));
    beside(&[&sets], |amid| {
        until_met(FORKS, || {
            let met = fork::found_in_a_fork(|| {
                let amid = amid();
                group.set(depth, -7);
                (group.sum(depth) == -7).then_some(amid)
            });
            met.expect("the child fails, or does not end")
        });
    });
    let scrapes = || export.write(&tree, &mut String::new()).expect("of memory");
    beside(&[&scrapes], |_| {
        until_met(FORKS_OF_FLUSHES, || {
            let met = fork::found_in_a_fork(|| {
                let mut text = String::new();
                or_told(|| export.write(&tree, &mut text).is_ok() && text.contains("depth"))
            });
            met.expect("the child fails, or does not end")
        });
    });
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
