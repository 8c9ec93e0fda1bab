//! The optional flusher flushes by period and by threshold, and runs until its guard is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use submeter::{Count, Counter, Schema, Tree};

/// Longer than any test.
const NEVER: Duration = Duration::MAX;

fn tree() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    (Tree::new(schema.build().expect("valid")).expect("address space"), requests)
}

/// Waits for a condition that must become true, however slow the machine.
fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !come() {
        assert!(Instant::now() < patience, "{what} never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_flushes_every_period() {
    let (tree, requests) = tree();
    let flusher = tree.flusher().period(Duration::from_millis(2)).start().expect("a thread");
    for round in 1..=3 {
        tree.root().add(requests, 1);
        wait_for("a flush", || tree.root().read(requests).value == round);
    }
    // Readers can see the totals of a flush before the flusher has counted it.
    wait_for("three flushes", || flusher.flushes() >= 3);
    assert_eq!(flusher.panics(), 0);
}

/// The flusher flushes once more than the threshold is pending, and not before.
#[test]
fn it_flushes_once_more_is_pending_than_was_said() {
    let (tree, requests) = tree();
    let flusher = tree.flusher().period(NEVER).when(requests, 1_000_000).start().expect("a thread");
    tree.root().add(requests, 1000);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((tree.root().read(requests).value, flusher.flushes()), (0, 0));
    tree.root().add(requests, 1_000_000);
    wait_for("an urgent flush", || tree.root().read(requests).value == 1_001_000);
    wait_for("its end", || flusher.flushes() == 1);
}

#[test]
fn dropping_it_ends_the_thread_in_any_wait() {
    let (tree, requests) = tree();
    drop(tree.flusher().period(NEVER).start().expect("a thread"));
    drop(tree.flusher().period(NEVER).when(requests, 10).start().expect("a thread"));
    drop(tree.flusher().start().expect("a thread"));
    // Once it ends, it no longer keeps the tree alive.
    let group = tree.get_or_create("/a").expect("created");
    drop(tree);
    assert!(group.is_killed(), "the last clone of the tree went");
}

/// A panic is counted, stops nothing, and is followed by another run.
#[test]
fn panics_are_counted_and_stop_nothing() {
    /// What a panic throws may panic too when it is dropped.
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let (tree, requests) = tree();
    let runs = Arc::new(AtomicU64::new(0));
    let after = Arc::clone(&runs);
    let flusher = tree
        .flusher()
        .period(Duration::from_millis(1))
        .also(|| std::panic::resume_unwind(Box::new(Bad)))
        .also(move || {
            after.fetch_add(1, Ordering::Relaxed);
        })
        .start()
        .expect("a thread");
    tree.root().add(requests, 5);
    wait_for("three rounds", || runs.load(Ordering::Relaxed) >= 3);
    // The second flush from now has begun after the add.
    let flushes = flusher.flushes();
    wait_for("two flushes", || flusher.flushes() >= flushes + 2);
    assert_eq!(tree.root().read(requests).value, 5);
    assert!(flusher.panics() >= 3);
}

/// A closure that drops the guard does not wait for itself.
#[test]
fn a_closure_may_drop_its_guard() {
    let (tree, _) = tree();
    let (give, take) = mpsc::channel();
    let (ended, end) = mpsc::channel();
    let flusher = tree
        .flusher()
        .period(Duration::from_millis(1))
        .also(move || {
            if let Ok(own) = take.recv() {
                drop::<submeter::Flusher>(own);
                ended.send(()).expect("heard");
            }
        })
        .start()
        .expect("a thread");
    give.send(flusher).expect("it lives");
    end.recv_timeout(Duration::from_secs(60)).expect("the drop returned");
    // The thread ends and drops the closure, and with it the sender.
    assert!(end.recv_timeout(Duration::from_secs(60)).is_err());
}

#[test]
fn a_period_of_zero_is_refused() {
    let (tree, _) = tree();
    let error = tree.flusher().period(Duration::ZERO).start().expect_err("no period");
    assert!(error.to_string().contains("period is 0"), "{error}");
}

#[test]
#[should_panic(expected = "another tree")]
fn a_metric_of_another_tree_is_refused_at_once() {
    let (mine, _) = tree();
    let (_, theirs) = tree();
    let _flusher = mine.flusher().when(theirs, 1).start();
}
