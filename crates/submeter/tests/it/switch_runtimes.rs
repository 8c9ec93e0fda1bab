//! Futures, tasks, requests and parallel work in groups.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use rayon::prelude::*;
use submeter::switch::{self, InGroup};
use submeter::{Bytes, Counter, Group, Nanoseconds, Schema, Tree};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use crate::work::{burn, burn_ms};

fn fixture() -> (Tree, Counter<Nanoseconds>, Group, Group) {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    (tree, cpu, a, b)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("threads")
}

/// Tasks that move between workers are charged to their groups.
#[test]
fn tasks_that_move_are_charged_to_their_groups() {
    let (tree, cpu, a, b) = fixture();
    let used = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let runtime = runtime();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for index in 0..16 {
            let (group, us) = if index % 2 == 0 { (&a, 300) } else { (&b, 100) };
            let used = Arc::clone(&used[index % 2]);
            let own = group.clone();
            let task = async move {
                for step in 0..25 {
                    assert_eq!(switch::current().as_ref(), Some(&own));
                    used.fetch_add(burn(Duration::from_micros(us)), Ordering::Relaxed);
                    // A timer or another task wakes it, on any free worker.
                    if step % 5 == 0 {
                        tokio::time::sleep(Duration::from_micros(100)).await;
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
            };
            tasks.push(tokio::spawn(task.in_group(group)));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(switch::current(), None);
    });
    drop(runtime);
    tree.flush();
    for (group, used) in [(&a, &used[0]), (&b, &used[1])] {
        let (charged, used) = (group.read(cpu).value, used.load(Ordering::Relaxed));
        // Allows for the work of the poll itself and for interrupts between two clock readings.
        let right = charged + 2_000_000 >= used && charged <= used + used / 5 + 20_000_000;
        assert!(right, "{group:?}: {charged} charged of {used}");
    }
}

/// A future is out of its group while it waits, and in it when it is dropped.
#[test]
fn a_waiting_future_is_out_of_its_group() {
    /// A value that reports the group in which it is dropped.
    struct Note(std::sync::mpsc::Sender<Option<Group>>);
    impl Drop for Note {
        fn drop(&mut self) {
            let _ = self.0.send(switch::current());
        }
    }
    let (_tree, _, a, b) = fixture();
    let (sender, receiver) = std::sync::mpsc::channel();
    let note = Note(sender);
    let mut future = Box::pin(
        async move {
            let _note = note;
            std::future::pending::<()>().await;
        }
        .in_group(&a),
    );
    assert_eq!(future.group(), Some(&a));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _outer = b.enter();
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_eq!(switch::current(), Some(b.clone()));
    drop(future);
    assert_eq!(receiver.recv().expect("dropped"), Some(a));
    assert_eq!(switch::current(), Some(b.clone()));
}

#[test]
fn a_panic_in_a_poll_leaves_the_group() {
    let (_tree, _, a, b) = fixture();
    let runtime = Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(async {
        let task = async {
            tokio::task::yield_now().await;
            panic!("on purpose");
        };
        assert!(tokio::spawn(task.in_group(&a)).await.expect_err("panics").is_panic());
        // The runtime caught the panic on this thread.
        assert_eq!(switch::current(), None);
        assert_eq!(async { switch::current() }.in_group(&b).await, Some(b.clone()));
    });
    let poll = || {
        let future = async { panic!("on purpose") }.in_group(&a);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _: std::task::Poll<()> = std::pin::pin!(future).poll(&mut context);
    };
    assert!(std::panic::catch_unwind(AssertUnwindSafe(poll)).is_err());
    assert_eq!(switch::current(), None);
}

#[test]
fn futures_nest_and_spawned_tasks_do_not_inherit() {
    let (_tree, _, a, b) = fixture();
    runtime().block_on(async {
        let nested = async {
            let inner = async { switch::current() }.in_group(&b).await;
            let spawned = tokio::spawn(async { switch::current() }).await.expect("no panic");
            (inner, spawned, switch::current())
        };
        let (inner, spawned, outer) = nested.in_group(&a).await;
        assert_eq!((inner, spawned, outer), (Some(b.clone()), None, Some(a.clone())));
    });
}

#[test]
fn blocking_work_is_charged_where_it_runs() {
    let (tree, cpu, a, _) = fixture();
    let runtime = runtime();
    let work = a.run(|| runtime.spawn_blocking(switch::inherit(|| burn_ms(5))));
    let used = runtime.block_on(work).expect("no panic");
    let charged = tree.root().sum(cpu);
    assert!(charged + 2_000_000 >= used, "{charged} charged of {used}");
}

#[test]
fn a_worker_that_parks_charges_what_it_used() {
    let (tree, cpu, a, _) = fixture();
    let runtime =
        Builder::new_multi_thread().worker_threads(1).on_thread_park(switch::park).build();
    let runtime = runtime.expect("a thread");
    // A group for the whole thread, as a pool of one tenant would have.
    let used = runtime
        .block_on(runtime.spawn(async move {
            std::mem::forget(a.enter());
            burn_ms(5)
        }))
        .expect("no panic");
    // The worker parks once it has nothing to do.
    for _ in 0..5_000 {
        if tree.root().sum(cpu) + 2_000_000 >= used {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{} charged of {used}", tree.root().sum(cpu));
}

#[test]
fn parallel_work_is_in_its_group_on_every_thread() {
    let (tree, cpu, a, b) = fixture();
    let (left, right) = rayon::join(|| a.run(|| burn_ms(2)), || a.run(|| b.run(|| burn_ms(2))));
    let seen: Vec<_> = (0..64).into_par_iter().map(a.wrap(|_: i32| switch::current())).collect();
    assert!(seen.iter().all(|seen| seen.as_ref() == Some(&a)));
    let spawned = AtomicU64::new(0);
    rayon::scope(|scope| {
        scope.spawn(|_| {
            b.run(|| {
                spawned.store(burn_ms(2), Ordering::Relaxed);
                assert_eq!(switch::current(), Some(b.clone()));
            });
        });
    });
    let spawned = spawned.into_inner();
    assert!(spawned > 0, "it runs before the scope ends");
    tree.flush();
    let (in_a, in_b) = (a.read(cpu).value, b.read(cpu).value);
    assert!(in_a + 1_000_000 >= left, "{in_a} charged of {left}");
    assert!(in_b + 2_000_000 >= right + spawned, "{in_b} charged");
}

#[test]
fn a_stream_works_in_its_group() {
    let (_tree, _, a, b) = fixture();
    let runtime = Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(b.clone().run(|| async {
        let items = stream::iter(0..3).map(|_| switch::current()).in_group(&a);
        assert_eq!(items.size_hint(), (3, Some(3)));
        assert_eq!(items.collect::<Vec<_>>().await, vec![Some(a.clone()); 3]);
    }));
    assert_eq!(switch::current(), None);
}

/// A parallel iterator is in its group before and after the adaptor.
#[test]
fn a_parallel_iterator_is_in_its_group() {
    let (_tree, _, a, b) = fixture();
    let seen = |_: &i32| switch::current() == Some(a.clone());
    let items = (0..1_000).into_par_iter().filter(seen).in_group(&a);
    assert_eq!(items.opt_len(), None);
    assert_eq!(items.filter(seen).count(), 1_000);
    let indexed = (0..1_000).into_par_iter().in_group(&a);
    assert_eq!(indexed.opt_len(), Some(1_000));
    // In order, although the pieces end in any order.
    let squares: Vec<i32> = b.run(|| indexed.map(|n| n * n).collect());
    assert!(squares.iter().enumerate().all(|(n, square)| (n * n) as i32 == *square));
    assert_eq!((0..1_000).into_par_iter().in_group(&a).find_first(|n| *n == 700), Some(700));
    assert_eq!(switch::current(), None);
    rayon::broadcast(|_| assert_eq!(switch::current(), None));
}

/// What was moved is counted, however little of the requested amount; errors and waits are not.
#[test]
fn a_counted_connection_counts_what_was_moved() {
    let mut schema = Schema::builder();
    let [read, written] = ["read", "written"].map(|name| schema.counter::<Bytes>(name, ""));
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let (root, a) = (tree.root(), tree.create("/a").expect("new"));
    let runtime = Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(async {
        let (mut far, near) = tokio::io::duplex(4);
        let mut near = switch::Counted::new(near);
        far.write_all(b"who").await.expect("room");
        assert_eq!(near.read(&mut [0; 8]).await.expect("three"), 3);
        assert!(near.group().is_none());
        near.set_group(root, read, written);
        assert_eq!(near.group(), Some(root));
        assert_eq!(near.write(b"123456").await.expect("room for some"), 4);
        let full = std::future::poll_fn(|context| {
            std::task::Poll::Ready(pin!(near.write(b"5")).poll(context).is_pending())
        });
        assert!(full.await);
        assert_eq!((root.sum(read), root.sum(written)), (3, 4), "with what came before");
        near.set_group(&a, read, written);
        far.write_all(b"abc").await.expect("room");
        assert_eq!(near.read(&mut [0; 8]).await.expect("three"), 3);
        drop(far);
        assert_eq!(near.read(&mut [0; 8]).await.expect("the end"), 0);
        near.write(b"x").await.expect_err("nobody reads");
    });
    assert_eq!((a.sum(read), a.sum(written)), (3, 0));
    assert_eq!((root.sum(read), root.sum(written)), (6, 4));
}
