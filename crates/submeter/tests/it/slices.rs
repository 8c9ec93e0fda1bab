//! Time slices. Counts of polls, not times, show which task waits for which.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::{Stream, StreamExt, future, stream};
use submeter::switch::{InGroup, TimeSlice};
use submeter::{Group, Schema, Tree};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

use crate::work::{burn, burn_ms};

const SLICE: TimeSlice = TimeSlice::new(Duration::from_millis(3));
/// Longer than any test.
const LONG: TimeSlice = TimeSlice::new(Duration::from_secs(1000));

fn tree(has_cpu_time: bool) -> Tree {
    let mut schema = Schema::builder();
    if has_cpu_time {
        schema.cpu_time("cpu", "CPU time");
    }
    Tree::new(schema.build().expect("valid")).expect("address space")
}

/// Polls until the future is ready, and returns how often.
fn polls<T>(future: impl Future<Output = T>) -> u32 {
    let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
    let mut polls = 1;
    while future.as_mut().poll(&mut context).is_pending() {
        polls += 1;
    }
    polls
}

/// Yields as most code does. Tokio's own `yield_now` comes back only when all tasks have nothing to
/// do, or after 61 turns.
async fn behind_the_others() {
    let mut has_yielded = false;
    let yields = poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    yields.await;
}

/// Runs `heavy` beside a light task on one thread, and returns how often the light task was polled
/// meanwhile.
fn polls_of_a_neighbour(heavy: impl Future<Output = ()> + 'static) -> u32 {
    let (is_over, polls) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let (ends, counts) = (Rc::clone(&is_over), Rc::clone(&polls));
    let heavy = async move {
        heavy.await;
        ends.set(true);
    };
    let light = async move {
        while !is_over.get() {
            counts.set(counts.get() + 1);
            behind_the_others().await;
        }
    };
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        // In the order in which they are spawned.
        let tasks = [spawn_local(heavy), spawn_local(light)];
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    polls.get()
}

async fn work(steps: u32, checkpoint: Option<TimeSlice>) {
    for _ in 0..steps {
        burn(Duration::from_micros(500));
        if let Some(slice) = checkpoint {
            slice.checkpoint().await;
        }
    }
}

/// A long task with checkpoints lets its neighbour run; one without does not.
#[test]
fn checkpoints_let_a_neighbour_run() {
    let tree = tree(true);
    // 60 ms are 20 slices; the clocks of test and switch may differ by a millisecond.
    let polled = polls_of_a_neighbour(work(120, Some(SLICE)).in_group(tree.root()));
    assert!((10..=30).contains(&polled), "{polled}");
    let polled = polls_of_a_neighbour(work(120, None).in_group(tree.root()));
    assert_eq!(polled, 0, "it is ready when the other has its first turn");
}

#[test]
fn slices_are_of_measured_time_and_not_of_calls() {
    let tree = tree(true);
    let many = async {
        for _ in 0..200_000 {
            LONG.checkpoint().await;
        }
    };
    assert_eq!(polls(many.in_group(tree.root())), 1, "calls take no slice");
    let few = async {
        for _ in 0..5 {
            burn_ms(6);
            SLICE.checkpoint().await;
        }
    };
    assert_eq!(polls(few.in_group(tree.root())), 6, "each comes after a slice");
    let waits = async {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(6));
            SLICE.checkpoint().await;
        }
    };
    assert_eq!(polls(waits.in_group(tree.root())), 1, "who waits uses nothing");
}

/// Outside groups nothing yields; without CPU time a slice begins at its first checkpoint.
#[test]
fn outside_of_groups_nothing_yields() {
    let (metered, plain) = (tree(true), tree(false));
    let zero = TimeSlice::new(Duration::ZERO);
    burn_ms(6);
    assert!(!SLICE.should_yield() && !zero.should_yield());
    TimeSlice::renew();
    assert_eq!(polls(zero.checkpoint()), 1);
    assert_eq!(polls(zero.checkpoint().in_group(plain.root())), 2);
    for (tree, is_metered) in [(metered, true), (plain, false)] {
        tree.root().run(|| {
            burn_ms(6);
            assert_eq!(SLICE.should_yield(), is_metered);
            burn_ms(6);
            assert!(SLICE.should_yield());
        });
        assert!(!SLICE.should_yield());
    }
}

/// A slice continues in nested groups and ends with the last group.
#[test]
fn a_slice_goes_on_in_nested_groups() {
    let tree = tree(true);
    let [web, mail] = ["/web", "/mail"].map(|path| tree.create(path).expect("new"));
    web.run(|| {
        burn_ms(4);
        mail.run(|| assert!(SLICE.should_yield(), "it is of the thread"));
        assert!(SLICE.should_yield(), "nobody has had a turn");
        TimeSlice::renew();
        assert!(!SLICE.should_yield());
        mail.run(|| burn_ms(4));
        assert!(SLICE.should_yield(), "used below");
    });
    let enters: &dyn Fn(&Group) = &|group| assert!(!group.run(|| SLICE.should_yield()));
    [&web, &mail].into_iter().for_each(enters);
}

/// On a thread that stays in a group, work that has yielded begins the next slice.
///
/// Like a runtime that runs entirely in one group: the thread never leaves it.
#[test]
fn a_yield_begins_a_slice_on_a_group_thread() {
    let tree = tree(true);
    tree.root().run(|| {
        // 18 ms are 6 slices; if no new one began, each of the 36 checkpoints would yield.
        let polled = polls(work(36, Some(SLICE)));
        assert!((4..=10).contains(&polled), "{polled}");
    });
}

/// If several futures of a task have yielded, one of them begins the next slice.
#[test]
fn one_future_of_a_task_begins_the_next_slice() {
    let tree = tree(true);
    let polled = tree.root().run(|| {
        let futures = [0; 3].map(|_| Box::pin(work(24, Some(SLICE))));
        polls(future::join_all(futures))
    });
    // 36 ms, in turns of a slice and two steps; if each future began a slice, in turns of three
    // slices.
    assert!((7..=15).contains(&polled), "{polled}");
}

#[test]
fn an_always_ready_stream_yields_between_polls() {
    let tree = tree(true);
    let items = SLICE.between_polls(stream::repeat(()).take(40));
    assert_eq!(items.size_hint(), (40, Some(40)));
    let reads = async { items.for_each(|()| async { _ = burn(Duration::from_micros(500)) }).await };
    let polled = polls(reads.in_group(tree.root()));
    // 20 ms are 6 slices.
    assert!((4..=10).contains(&polled), "{polled}");
    // A future that is polled at all is polled at least once per turn, whatever the slice.
    let zero = TimeSlice::new(Duration::ZERO);
    let future = zero.between_polls(behind_the_others());
    assert_eq!(polls(future.in_group(tree.root())), 4);
}

/// Jobs of rayon and of blocking threads are told when their slice is used up.
///
/// Jobs of pools, which no runtime polls: each begins a slice when its thread enters the group.
#[test]
fn jobs_are_told_when_their_slice_is_used_up() {
    let tree = tree(true);
    let web = tree.create("/web").expect("new");
    let job = move || {
        for _ in 0..2 {
            web.run(|| {
                assert!(!SLICE.should_yield(), "it has begun");
                let used = burn_ms(5);
                assert!(SLICE.should_yield() && !LONG.should_yield(), "{used} ns are more");
                TimeSlice::renew();
                assert!(!SLICE.should_yield(), "others had their turn");
            });
            assert!(!SLICE.should_yield(), "outside of all groups nothing yields");
        }
    };
    let on_rayon = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    on_rayon.scope(|scope| (0..4).for_each(|_| scope.spawn(|_| job())));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(runtime.spawn_blocking(job)).expect("no panic");
}
