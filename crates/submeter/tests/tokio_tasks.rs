//! Tasks whose spawning code mentions no group. Needs `RUSTFLAGS="--cfg tokio_unstable"`;
//! empty otherwise.
#![cfg(tokio_unstable)]

use std::future::pending;
use std::time::Duration;

use submeter::switch::{self, InGroup};
use submeter::{Count, Counter, Group, Schema, Tree};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    switch::follow_tasks(&mut builder).build().expect("a runtime")
}

fn tree() -> (Tree, Counter<Count>, [Group; 2]) {
    let mut schema = Schema::builder();
    let counter = schema.counter("work", "Work done");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("created"));
    (tree, counter, groups)
}

/// A task is in its spawner's group on every poll, and so are those that it spawns.
#[test]
fn tasks_follow_their_spawners_group() {
    let (_tree, _, groups) = tree();
    for threads in [1, 4] {
        let runtime = runtime(threads);
        let seen = async |group: Group| {
            let mut tasks = JoinSet::new();
            for _ in 0..50 {
                tasks.spawn(async {
                    let first = switch::current();
                    yield_now().await;
                    let second = switch::current();
                    let third = tokio::spawn(async { switch::current() }).await.expect("no panic");
                    [first, second, third]
                });
            }
            for seen in tasks.join_all().await {
                assert_eq!(seen, [const { None }; 3].map(|_: Option<Group>| Some(group.clone())));
            }
        };
        runtime.block_on(async {
            let [a, b] = groups.each_ref().map(|group| seen(group.clone()).in_group(group));
            tokio::join!(a, b);
        });
    }
}

#[test]
fn a_task_spawned_outside_of_groups_is_in_none() {
    let (_tree, _, [group, _]) = tree();
    let runtime = runtime(2);
    runtime.block_on(async {
        for _ in 0..50 {
            let inside = tokio::spawn(async { switch::current() }).in_group(&group);
            assert_eq!(tokio::spawn(async { switch::current() }).await.expect("no panic"), None);
            inside.await.expect("no panic");
            assert_eq!(tokio::spawn(async { switch::current() }).await.expect("no panic"), None);
        }
    });
}

/// What tasks count is charged to the groups in which they were spawned.
///
/// Tasks of several groups share each worker.
#[test]
fn tasks_count_where_they_were_spawned() {
    let (_tree, counter, groups) = tree();
    let runtime = runtime(2);
    let work = move |n: u64| async move {
        for _ in 0..n {
            switch::current().expect("in a group").inc(counter);
            yield_now().await;
        }
    };
    let spawn = |n| {
        let tasks: JoinSet<()> = (0..20).map(|_| work(n)).collect();
        tasks.join_all()
    };
    runtime.block_on(async {
        let [a, b] = [(&groups[0], 30), (&groups[1], 70)]
            .map(|(group, n)| async move { spawn(n).await }.in_group(group));
        tokio::join!(a, b);
    });
    assert_eq!(groups.map(|group| group.sum(counter)), [600, 1400]);
}

/// A task that has ended, panicked or was aborted no longer holds its group.
#[test]
fn an_ended_task_holds_no_group() {
    let (_tree, _, [group, _]) = tree();
    let runtime = runtime(2);
    runtime.block_on(async {
        let spawn = async {
            let ended = tokio::spawn(async {});
            let waiting = tokio::spawn(pending::<()>());
            let panicked = tokio::spawn(async { panic!("for the test") });
            ended.await.expect("no panic");
            panicked.await.expect_err("it panicked");
            waiting.abort();
            waiting.await.expect_err("aborted");
        };
        spawn.in_group(&group).await;
        let killed = group.kill().expect("not the root");
        drop(group);
        tokio::task::spawn_blocking(move || killed.released_blocking(Duration::from_secs(20)))
            .await
            .expect("no panic")
            .expect("nobody holds it");
    });
}

/// A poll inside a poll is in its own group; afterwards the outer poll is in its own again.
///
/// A poll may run another runtime on the same thread.
#[test]
fn a_poll_inside_a_poll_has_its_own_group() {
    let (_tree, _, [outer, inner]) = tree();
    let runtime = runtime(2);
    let nested = self::runtime(1);
    let poll = |group: Group| async move {
        let seen = tokio::task::block_in_place(|| {
            let task = async { tokio::spawn(async { switch::current() }).await };
            nested.block_on(task.in_group(&group)).expect("no panic")
        });
        let back = switch::current();
        // Dropped where it may block.
        tokio::task::spawn_blocking(move || drop(nested)).await.expect("no panic");
        (seen, back)
    };
    runtime.block_on(async {
        let task = poll(inner.clone());
        let seen = async { tokio::spawn(task).await }.in_group(&outer).await;
        assert_eq!(seen.expect("no panic"), (Some(inner), Some(outer)));
    });
}
