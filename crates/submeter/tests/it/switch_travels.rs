//! How a group travels: with every way to start work, to its end, cancellation or panic.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rayon::prelude::*;
use submeter::switch::{self, InGroup};
use submeter::{Group, Schema, Tree};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::task::TaskTracker;

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn fixture() -> (Tree, Group, Group) {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    (tree, a, b)
}

/// Reports the group in which it is dropped.
struct Note(mpsc::Sender<Option<Group>>);

impl Drop for Note {
    fn drop(&mut self) {
        let _ = self.0.send(switch::current());
    }
}

/// Asserts that nothing holds the group any longer.
fn is_left(group: Group) {
    let killed = group.kill().expect("not the root");
    drop(group);
    killed.released_blocking(PATIENCE).expect("nobody holds it");
}

#[test]
fn every_way_to_start_a_task_keeps_the_group() {
    let (_tree, a, _) = fixture();
    let here = async || switch::current();
    let creator = async {
        let tracker = TaskTracker::new();
        let tracked = tracker.spawn(here().in_current_group());
        let blocking = tracker.spawn_blocking(switch::inherit(switch::current));
        let mut set = JoinSet::new();
        set.spawn(here().in_current_group());
        set.spawn_local(here().in_current_group());
        set.spawn_blocking(switch::inherit(switch::current));
        let mut seen = set.join_all().await;
        let not_sent = Rc::new(());
        let local = async move {
            drop(not_sent);
            tokio::task::yield_now().await;
            switch::current()
        };
        let local = tokio::task::spawn_local(local.in_current_group());
        let spawned = tokio::spawn(here().in_current_group());
        let free = tokio::task::spawn_blocking(switch::inherit(switch::current));
        for task in [tracked, blocking, local, spawned, free] {
            seen.push(task.await.expect("no panic"));
        }
        let thread = std::thread::spawn(switch::inherit(switch::current));
        seen.push(thread.join().expect("no panic"));
        // Made here: inside the scope it would inherit from a thread of the pool.
        let inherited = switch::inherit(switch::current);
        seen.push(rayon::scope(|_| inherited()));
        tracker.close();
        tracker.wait().await;
        seen
    };
    let runtime = Builder::new_current_thread().build().expect("a thread");
    let seen = LocalSet::new().block_on(&runtime, creator.in_group(&a));
    assert_eq!(seen, vec![Some(a); 10]);

    let outside = async { tokio::spawn(here().in_current_group()).await.expect("no panic") };
    assert_eq!(runtime.block_on(outside), None);
    assert_eq!(switch::inherit(switch::current)(), None);
}

/// An aborted task is dropped in its group, and releases it.
#[test]
fn an_aborted_task_is_dropped_in_its_group() {
    let (_tree, a, b) = fixture();
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("threads");
    let (sender, dropped) = mpsc::channel();
    let (started, starts) = mpsc::channel();
    let pending = |started: mpsc::Sender<()>, note| async move {
        let _note = note;
        started.send(()).expect("the test waits");
        std::future::pending::<()>().await;
    };
    let creator = async {
        let task = tokio::spawn(pending(started.clone(), Note(sender.clone())).in_current_group());
        let mut set = JoinSet::new();
        set.spawn(pending(started, Note(sender)).in_group(&b));
        (task, set)
    };
    let (task, set) = runtime.block_on(creator.in_group(&a));
    for _ in 0..2 {
        starts.recv_timeout(PATIENCE).expect("it runs");
    }
    task.abort();
    assert_eq!(dropped.recv_timeout(PATIENCE).expect("dropped"), Some(a.clone()));
    // The remaining tasks of a set are aborted with it.
    runtime.block_on(async { drop(set) });
    assert_eq!(dropped.recv_timeout(PATIENCE).expect("dropped"), Some(b.clone()));
    assert!(runtime.block_on(task).expect_err("aborted").is_cancelled());
    for group in [a, b] {
        is_left(group);
    }
}

#[test]
fn an_ended_future_is_dropped_in_its_last_poll() {
    let (_tree, a, _) = fixture();
    let (sender, dropped) = mpsc::channel();
    let future = poll_fn({
        let _note = Note(sender);
        move |_| {
            let _ = &_note;
            Poll::Ready(switch::current())
        }
    });
    let mut future = pin!(future.in_group(&a));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Some(a.clone())));
    assert_eq!(dropped.try_recv(), Ok(Some(a)), "with the last poll, in the group");
}

/// A panic leaves the group, wherever it comes from.
#[test]
fn a_panic_leaves_the_group_from_anywhere() {
    let (_tree, a, b) = fixture();
    let runtime = Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(async {
        let thrown =
            a.run(|| tokio::task::spawn_blocking(switch::inherit(|| panic!("on purpose"))));
        assert!(thrown.await.expect_err("it panics").is_panic());
    });
    // The pool has one thread, which caught the panic.
    runtime.block_on(async {
        let after = tokio::task::spawn_blocking(switch::current).await;
        assert_eq!(after.expect("no panic"), None);
    });
    let thread = a.run(|| std::thread::spawn(switch::inherit(|| panic!("on purpose"))));
    assert!(thread.join().is_err());

    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let panics: [&(dyn Fn() + Sync); 4] = [
        &|| {
            rayon::join(|| a.run(|| ()), || a.run(|| panic!("on purpose")));
        },
        &|| rayon::scope(|scope| scope.spawn(|_| a.run(|| panic!("on purpose")))),
        &|| (0..100).into_par_iter().in_group(&a).for_each(|n| assert!(n != 50, "on purpose")),
        &|| {
            let pairs = (0..100).into_par_iter().in_group(&a).zip(0..100);
            pairs.for_each(|(n, _)| assert!(n != 50, "on purpose"));
        },
    ];
    for panics in panics {
        let thrown = catch_unwind(AssertUnwindSafe(|| pool.install(|| b.run(panics))));
        assert!(thrown.is_err());
        assert_eq!(pool.broadcast(|_| switch::current()), vec![None, None]);
    }
    for group in [a, b] {
        is_left(group);
    }
}

#[test]
fn a_parallel_iterator_keeps_its_positions() {
    let (_tree, a, b) = fixture();
    let here = |group: &Group| switch::current().as_ref() == Some(group);
    let items = || (0..1_000).into_par_iter().map(|n| (n, here(&a))).in_group(&a);
    assert_eq!(items().len(), 1_000);

    let mut collected = Vec::new();
    items().map(|item| (item, here(&a))).collect_into_vec(&mut collected);
    assert!(collected.iter().enumerate().all(|(n, item)| *item == ((n, true), true)));
    let in_order = items().enumerate().rev().map(|(at, (n, made))| at == n && made && here(&a));
    assert!(in_order.all(|right| right));
    // Each item is made in its own group, even if both iterators are consumed in turns.
    let others = (0..1_000).into_par_iter().map(|n| (n, here(&b))).in_group(&b);
    let right = |((n, in_a), (m, in_b)): &_| n == m && *in_a && *in_b && here(&b);
    assert_eq!(items().zip(others).filter(right).count(), 1_000);
    let backwards = items().chunks(7).rev().flat_map_iter(|chunk| chunk.into_iter().rev());
    assert!(backwards.map(|(n, _)| n).collect::<Vec<_>>().into_iter().eq((0..1_000).rev()));
    assert_eq!(items().with_min_len(100).position_first(|(n, _)| n == 700), Some(700));
    assert_eq!(switch::current(), None);
}
