//! Sessions count the events of groups on all threads, here on counters that the test drives.

use std::time::Duration;

use crate::support::{CYCLES, Counters, Fixture, INSTRUCTIONS, another, fixture, one, work};
use submeter::perf::{Request, RequestState, Session};
use submeter::switch::{self, InGroup};
use submeter::{Group, Schema, Tree};
use submeter_events::GroupKey;

/// Opens a session that takes turns at each switch.
fn open(f: &Fixture, counters: usize, requests: Vec<Request>) -> Session {
    let builder = Session::builder().interval(Duration::ZERO);
    builder.open_with(&f.tree, requests, move || Counters::new(counters))
}

fn values(session: &Session) -> Vec<u64> {
    session.counts().iter().map(|counts| counts.values()[0]).collect()
}

#[test]
fn a_group_counts_its_own_and_its_descendants() {
    let f = fixture();
    let groups = [&f.a, &f.x, &f.y, &f.b, f.tree.root()];
    let mut requests: Vec<_> = groups.map(|group| Request::group(group, one("cycles"))).into();
    requests.push(Request::everywhere(one("cycles")));
    let session = open(&f, 8, requests);
    f.a.run(|| work(CYCLES, 1));
    f.x.run(|| work(CYCLES, 10));
    f.y.run(|| f.b.run(|| work(CYCLES, 100)));
    f.b.run(|| f.y.run(|| work(CYCLES, 1000)));
    work(CYCLES, 10_000);
    switch::park();
    assert_eq!(values(&session), [1011, 10, 1000, 100, 1111, 11_111]);
    for counts in session.counts() {
        assert_eq!(*counts.state(), RequestState::Counting);
        assert_eq!((counts.threads(), counts.is_killed()), (1, false));
    }
    assert_eq!(session.threads(), 1);
}

#[test]
fn sums_are_conserved_as_threads_come_and_go() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 300 };
    let f = fixture();
    let groups = [&f.a, &f.x, &f.y];
    let mut requests: Vec<_> = groups.map(|group| Request::group(group, one("cycles"))).into();
    requests.push(Request::everywhere(one("cycles")));
    let session = open(&f, 8, requests);
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let spawn = |_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        f.a.run(|| {
                            work(CYCLES, 1);
                            f.x.run(|| work(CYCLES, 2));
                            f.y.run(|| work(CYCLES, 3));
                        });
                        work(CYCLES, 4);
                    }
                })
            };
            let threads: Vec<_> = (0..THREADS).map(spawn).collect();
            let mut last = values(&session);
            for _ in 0..20 {
                let now = values(&session);
                assert!(now.iter().zip(&last).all(|(now, last)| now >= last), "{now:?} {last:?}");
                last = now;
            }
            // A scope does not wait for thread-local destructors; a join does.
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
    let all = 3 * THREADS * ROUNDS;
    // A thread joins the session when it first enters `a`; from then on its work outside groups
    // counts for the whole process.
    assert_eq!(values(&session), [6 * all, 2 * all, 3 * all, 10 * all]);
    assert_eq!(session.threads() as u64, 3 * THREADS);
    assert!(session.counts().iter().all(|counts| counts.threads() as u64 == 3 * THREADS));
}

#[test]
fn a_future_is_counted_wherever_it_is_polled() {
    let f = fixture();
    let session = open(&f, 4, vec![Request::group(&f.a, one("cycles"))]);
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build();
    workers.expect("threads").block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let work = async {
                    for _ in 0..50 {
                        work(CYCLES, 1);
                        tokio::task::yield_now().await;
                    }
                };
                tokio::spawn(work.in_group(&f.x))
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert_eq!(values(&session), [400]);
}

#[test]
fn what_is_not_supported_keeps_the_rest_counted() {
    let f = fixture();
    let lists = ["cycles", "branches", "{cycles,branches}"];
    let mut requests: Vec<_> = lists.map(|list| Request::group(&f.a, one(list))).into();
    requests.push(Request::group(&f.b, one("cycles")));
    let session = open(&f, 4, requests);
    f.a.run(|| work(CYCLES, 7));
    let counts = session.counts();
    assert_eq!((counts[0].state(), counts[0].scaled(0)), (&RequestState::Counting, Some(7)));
    for refused in &counts[1..3] {
        let RequestState::NotSupported(why) = refused.state() else { panic!("{refused:?}") };
        assert_eq!((why.event(), refused.scaled(0)), ("branches", None));
    }
    assert_eq!((counts[3].state(), counts[3].scaled(0)), (&RequestState::NotCounted, None));
}

#[test]
fn a_pinned_event_without_a_counter_is_in_error() {
    let f = fixture();
    let lists = ["cycles:D", "instructions:D", "task-clock"];
    let session = open(&f, 1, lists.map(|list| Request::group(&f.a, one(list))).into());
    f.a.run(|| work(CYCLES, 7));
    let counts = session.counts();
    assert_eq!(counts[0].scaled(0), Some(7));
    let RequestState::Error(why) = counts[1].state() else { panic!("{counts:?}") };
    assert!(why.contains("pinned"), "{why}");
    assert_eq!(counts[1].scaled(0), None);
}

#[test]
fn rotation_starves_no_group_that_is_left_soon() {
    let f = fixture();
    let lists = ["cycles", "instructions", "{cycles,instructions}"];
    let of = |group: &Group| lists.map(|list| Request::group(group, one(list)));
    let mut requests: Vec<_> = [of(&f.x), of(&f.y)].concat();
    requests.push(Request::group(&f.a, one("instructions")));
    requests.push(Request::everywhere(one("cycles")));
    let builder = Session::builder().interval(Duration::from_micros(200));
    let session = builder.open_with(&f.tree, requests, || Counters::new(2));
    for _ in 0..200 {
        // All turns fall into `y`, which is long; `x` is very short.
        f.x.run(|| work(CYCLES, 1));
        f.y.run(|| {
            crate::work::burn(Duration::from_micros(300));
            work(INSTRUCTIONS, 1);
        });
    }
    for counts in session.counts() {
        assert_eq!(*counts.state(), RequestState::Counting, "{counts:?}");
        assert!(counts.running_ns() <= counts.enabled_ns(), "{counts:?}");
    }
}

#[test]
fn a_killed_group_is_released_its_counts_stay() {
    let f = fixture();
    let session = open(&f, 4, vec![Request::group(&f.b, one("cycles"))]);
    f.b.run(|| work(CYCLES, 5));
    let killed = f.b.kill().expect("a leaf");
    f.b.run(|| work(CYCLES, 1));
    drop(f.b);
    killed.released_blocking(Duration::from_secs(30)).expect("the session does not hold it");
    let again = f.tree.create("/b").expect("the name is free");
    again.run(|| work(CYCLES, 100));
    let counts = session.counts();
    assert_eq!((counts[0].values(), counts[0].is_killed()), (&[6][..], true));
    assert_eq!(*counts[0].state(), RequestState::Counting);
    assert_eq!(counts[0].path(), Some("/b"));
}

#[test]
fn two_sessions_do_not_disturb_each_other() {
    let f = fixture();
    let first = open(&f, 4, vec![Request::group(&f.a, one("cycles"))]);
    f.a.run(|| work(CYCLES, 1));
    let second = open(&f, 4, vec![Request::group(&f.a, one("cycles"))]);
    f.a.run(|| work(CYCLES, 10));
    drop(first);
    f.a.run(|| work(CYCLES, 100));
    assert_eq!(values(&second), [110]);
}

#[test]
fn sessions_end_while_threads_switch() {
    let f = fixture();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
                    f.x.run(|| f.b.run(|| work(CYCLES, 1)));
                }
            });
        }
        for _ in 0..if cfg!(miri) { 3 } else { 100 } {
            let session = open(&f, 1, vec![Request::group(&f.b, one("cycles"))]);
            std::thread::yield_now();
            let counts = &session.counts()[0];
            assert!(counts.running_ns() <= counts.enabled_ns(), "{counts:?}");
        }
    });
}

#[test]
fn groups_of_other_trees_are_as_none() {
    let (f, other) = (fixture(), another());
    let requests = vec![Request::group(f.tree.root(), one("cycles"))];
    let session = open(&f, 4, requests);
    f.a.run(|| {
        work(CYCLES, 1);
        other.a.run(|| work(CYCLES, 10));
        work(CYCLES, 100);
    });
    assert_eq!(values(&session), [101]);
}

#[test]
#[should_panic(expected = "belongs to another tree")]
fn a_group_of_another_tree_is_refused() {
    let (f, other) = (fixture(), another());
    let _ = Session::open(&f.tree, [Request::group(&other.a, one("task-clock"))]);
}

#[test]
fn a_switch_of_a_session_allocates_nothing() {
    let f = fixture();
    let lists = ["cycles", "instructions", "{cycles,instructions}", "task-clock"];
    let groups = [&f.a, &f.x, &f.y, &f.b];
    let mut requests: Vec<_> = lists.map(|list| Request::everywhere(one(list))).into();
    requests
        .extend(groups.iter().flat_map(|group| lists.map(|list| Request::group(group, one(list)))));
    let simulated = open(&f, 2, requests.clone());
    let builder = Session::builder().interval(Duration::ZERO);
    let real = builder.open(&f.tree, requests);
    let switches = || f.a.run(|| f.x.run(|| f.b.run(|| f.y.run(switch::park))));
    switches();
    let count = allocation_counter::measure(|| {
        for _ in 0..100 {
            switches();
        }
    });
    assert_eq!(count.count_total, 0);
    assert_eq!((simulated.threads(), real.threads()), (1, 1));
}

/// What one interval of a thread's clock may lack, as `switch::clock::ThreadClock` says.
const INTERVAL_ERROR_NS: u64 = 1_100_000;

#[test]
fn the_clock_counts_what_the_groups_use() {
    let f = fixture();
    let list = ["task-clock", "{task-clock,cpu-clock}"];
    let requests = list.map(|list| Request::group(&f.a, one(list)));
    let session = Session::open(&f.tree, requests);
    f.x.run(|| crate::work::burn(Duration::from_millis(20)));
    crate::work::burn(Duration::from_millis(20));
    for counts in session.counts() {
        assert_eq!(*counts.state(), RequestState::Counting);
        let value = counts.values()[0];
        let expected = 20_000_000 - INTERVAL_ERROR_NS..40_000_000;
        assert!(expected.contains(&value), "{value} ns");
        assert_eq!((value, value), (counts.enabled_ns(), counts.running_ns()));
    }
    // The group is charged the same time, from the same reading of the clock.
    assert_eq!(f.a.sum(f.cpu), session.counts()[0].values()[0]);
}

/// An event group of which only a part is time counts the rest too.
#[test]
fn a_group_with_time_counts_the_rest_too() {
    let f = fixture();
    let list = ["{task-clock,page-faults:u}", "task-clock"];
    let requests = list.map(|list| Request::group(&f.a, one(list)));
    let session = Session::open(&f.tree, requests);
    f.x.run(|| crate::work::burn(Duration::from_millis(5)));
    let counts = session.counts();
    if let RequestState::NotSupported(why) = counts[0].state() {
        eprintln!("skipped: {why}");
        return;
    }
    let [ns, faults] = *counts[0].values() else { panic!("two events: {counts:?}") };
    assert_eq!(ns, counts[1].values()[0]);
    // Each would take longer than a microsecond.
    assert!(faults < 5000, "{faults} faults in {ns} ns");
}

#[test]
fn each_switch_sees_ancestors_and_process_time() {
    let f = fixture();
    let time = || one("task-clock");
    let requests = vec![
        Request::group(&f.a, time()),
        Request::everywhere(time()),
        Request::group(&f.x, time()),
    ];
    let session = Session::builder().interval(Duration::from_secs(3600)).open(&f.tree, requests);
    let _stays = f.a.enter();
    let mut last = values(&session);
    for _ in 0..3 {
        f.x.run(|| crate::work::burn(Duration::from_millis(5)));
        let now = values(&session);
        let least = 5_000_000 - INTERVAL_ERROR_NS;
        assert!(now.iter().zip(&last).all(|(now, last)| now - last >= least), "{now:?}");
        last = now;
    }
}

#[test]
fn keys_of_groups_are_never_used_again() {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let mut keys = std::collections::HashSet::new();
    for _ in 0..1000 {
        let group = tree.create("/again").expect("its name is free");
        assert!(keys.insert(GroupKey(group.id())));
        group.kill().expect("a leaf");
    }
}
