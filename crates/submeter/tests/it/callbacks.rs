//! A panic in user code that the library calls leaves the tree usable. The tests for aggregators,
//! observers, flushers and futures are beside their other tests.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use submeter::{Count, Counter, Schema, Tree};

/// Panics without invoking the panic hook.
fn fail() {
    resume_unwind(Box::new("the user's"));
}

fn tree() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    (Tree::new(schema.build().expect("sound")).expect("memory"), requests)
}

/// Checks that the tree still counts, flushes, kills and creates groups.
fn goes_on(tree: &Tree, requests: Counter<Count>) {
    let before = tree.root().sum(requests);
    let group = tree.get_or_create("/after").expect("created");
    group.add(requests, 7);
    assert_eq!(tree.snapshot().groups().len(), tree.group_count());
    let killed = group.kill().expect("no children");
    drop(group);
    assert!(killed.released_blocking(Duration::from_secs(30)).is_ok());
    assert_eq!(tree.root().sum(requests), before + 7);
}

struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fail();
    }
}

/// Data that panics when it is dropped is dropped once, and its group is released.
#[test]
fn panicking_data_is_dropped_once() {
    let (tree, requests) = tree();
    let drops = Arc::new(AtomicUsize::new(0));
    let group = tree.get_or_create("/a").expect("created");
    group.data_or_init(|| Bomb(Arc::clone(&drops))).expect("alive");
    group.add(requests, 1);
    let killed = group.kill().expect("no children");
    // The panic may reach the caller that drops the last handle or flushes what remains.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(group)));
    let _ = catch_unwind(AssertUnwindSafe(|| tree.flush()));
    let wait = || killed.released_blocking(Duration::from_secs(30));
    assert!(catch_unwind(AssertUnwindSafe(wait)).is_err(), "the wait drops it");
    assert!(wait().is_ok());
    let _ = catch_unwind(AssertUnwindSafe(|| drop(killed)));
    let _ = catch_unwind(AssertUnwindSafe(|| tree.flush()));
    goes_on(&tree, requests);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(tree.root().sum(requests), 1 + 7);
}

struct Alarm(AtomicUsize, bool);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if self.1 {
            fail();
        }
    }
}

#[test]
fn a_panicking_waker_keeps_no_other_asleep() {
    let (tree, requests) = tree();
    let group = tree.get_or_create("/a").expect("created");
    let killed = group.kill().expect("no children");
    let alarms: Vec<Arc<Alarm>> =
        [true, false, true].map(|fails| Arc::new(Alarm(AtomicUsize::new(0), fails))).into();
    let mut waits = [pin!(killed.released()), pin!(killed.released()), pin!(killed.released())];
    for (wait, alarm) in waits.iter_mut().zip(&alarms) {
        let waker = Waker::from(Arc::clone(alarm));
        assert!(matches!(wait.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    }
    let _ = catch_unwind(AssertUnwindSafe(|| drop(group)));
    for (alarm, wait) in alarms.iter().zip(&mut waits) {
        assert_eq!(alarm.0.load(Ordering::Relaxed), 1, "each is woken once");
        let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(_)));
    }
    goes_on(&tree, requests);
}

/// A section whose declaration panics leaves a schema that can be built.
#[test]
fn a_panicking_declaration_leaves_the_schema() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let declared = catch_unwind(AssertUnwindSafe(|| {
        schema.section("io", |section| {
            section.counter::<Count>("reads", "Reads");
            fail();
        });
    }));
    assert!(declared.is_err());
    // Later metrics belong to the first section again, although the closure panicked.
    let writes = schema.counter::<Count>("writes", "Writes");
    let tree = Tree::new(schema.build().expect("sound")).expect("memory");
    tree.root().add(writes, 3);
    assert_eq!(tree.root().sum(writes), 3);
    let section = |name| {
        let metric = tree.schema().metrics().iter().find(|metric| metric.name() == name);
        metric.expect("declared").section()
    };
    assert_eq!(section("writes"), section("requests"));
    goes_on(&tree, requests);
}
