//! Event groups that follow groups on all threads. CPU time as the event: it can be had everywhere.
#![cfg(not(miri))]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use submeter::perf::{EventGroup, Session, SessionCounts, parse};
use submeter::switch::{self, InGroup, Observer, clock};
use submeter::{Group, Schema, Tree};

/// One test at a time: a session follows the threads of all of them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("valid")).expect("address space")
}

fn group(tree: &Tree, path: &str) -> Group {
    tree.get_or_create(path).expect("created")
}

fn events(list: &str) -> EventGroup {
    parse(list).expect("valid").remove(0)
}

/// Uses about that much CPU time.
fn burn(ns: u64) {
    let end = clock::thread_cpu_ns() + ns;
    while clock::thread_cpu_ns() < end {
        black_box((0..200u64).sum::<u64>());
    }
}

fn values(counts: &[SessionCounts]) -> Vec<u64> {
    counts.iter().map(|counts| counts.values[0]).collect()
}

#[test]
fn a_parent_counts_what_its_children_do_and_all_is_at_least_the_root() {
    let (_alone, tree) = (alone(), tree());
    let (a, b) = (group(&tree, "/p/a"), group(&tree, "/p/b"));
    let parent = a.parent().expect("made with its child").clone();
    let wanted = [Some(&a), Some(&b), Some(&parent), Some(tree.root()), None];
    let session = Session::open(wanted.map(|group| (group, events("task-clock"))));
    let before = clock::process_cpu_ns();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for step in 0..300 {
                    let _a = a.enter();
                    burn(2000);
                    {
                        let _b = b.enter();
                        burn(1000);
                    }
                    if step % 3 == 0 {
                        burn(500);
                    }
                }
                burn(100_000);
            });
        }
    });
    let used = clock::process_cpu_ns() - before;
    let counts = session.counts();
    let [in_a, in_b, in_parent, in_root, all] = values(&counts)[..] else { panic!("five") };
    assert_eq!(in_parent, in_a + in_b, "every moment is in one of the children");
    assert_eq!(in_root, in_parent);
    assert!(all >= in_root + 300_000 && all <= used + 5_000_000, "{all} of {used}");
    assert!(in_a >= 3 * 300 * 2000 && in_b >= 3 * 300 * 1000, "{in_a} {in_b}");
    for counts in &counts {
        assert_eq!((counts.threads, counts.failed), (3, false));
        assert_eq!(counts.enabled_ns, counts.running_ns, "a clock needs no counter");
        assert_eq!(counts.values[0], counts.running_ns);
        assert_eq!(counts.scaled(0), Some(counts.values[0]));
    }
}

#[test]
fn counts_are_seen_while_threads_run_and_stay_when_they_end() {
    let (_alone, tree) = (alone(), tree());
    let web = group(&tree, "/web");
    let session = Session::open([(Some(&web), events("task-clock"))]);
    let counted = || session.counts()[0].values[0];
    web.run(|| burn(1_000_000));
    let first = counted();
    assert!(first >= 1_000_000);
    // Not while it stays, but at the latest when it leaves.
    let entered = web.enter();
    burn(1_000_000);
    switch::park();
    let parked = counted();
    assert!(parked >= first + 1_000_000);
    drop(entered);
    std::thread::scope(|scope| scope.spawn(|| web.run(|| burn(1_000_000))).join().expect("ran"));
    assert!(counted() >= parked + 1_000_000);
    assert_eq!(session.counts()[0].threads, 2);
}

#[test]
fn what_cannot_be_counted_is_said_and_the_rest_counts() {
    let (_alone, tree) = (alone(), tree());
    // No CPU has this event.
    let session = Session::open([
        (None, events("rffffffffffff")),
        (None, EventGroup::new(Vec::new(), false)),
        (None, events("task-clock")),
    ]);
    tree.root().run(|| burn(10_000));
    switch::park();
    let [refused, empty, clock] = &session.counts()[..] else { panic!("three") };
    let text = refused.not_supported.as_ref().expect("refused").to_string();
    assert!(text.contains("<not supported>"), "{text}");
    assert_eq!((refused.scaled(0), refused.threads), (None, 0));
    assert!(empty.not_supported.is_some() && empty.values.is_empty());
    assert!(clock.not_supported.is_none() && clock.scaled(0).is_some_and(|ns| ns >= 10_000));
}

#[test]
fn a_session_does_not_keep_a_killed_group_and_keeps_its_counts() {
    let (_alone, tree) = (alone(), tree());
    let web = group(&tree, "/web");
    let session = Session::open([(Some(&web), events("task-clock"))]);
    web.run(|| burn(100_000));
    let killed = web.kill().expect("alive");
    drop(web);
    let deadline = Instant::now() + Duration::from_secs(30);
    killed.wait_released(deadline).expect("nobody holds it");
    // A group of the same name is another one.
    group(&tree, "/web").run(|| burn(100_000));
    let counts = &session.counts()[0];
    assert_eq!(counts.path.as_deref(), Some("/web"));
    assert!(counts.values[0] >= 100_000 && counts.enabled_ns == counts.values[0]);
}

#[test]
fn sessions_come_and_go_while_threads_switch() {
    let (_alone, tree) = (alone(), tree());
    let (a, b) = (group(&tree, "/a"), group(&tree, "/b"));
    let steady = Session::open([(Some(tree.root()), events("task-clock"))]);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        a.run(|| black_box(()));
                        b.run(|| black_box(()));
                        // Relaxed: a statistic.
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            let both = [Some(&a), Some(&b)].map(|group| (group, events("task-clock")));
            let session = Session::open(both);
            std::thread::sleep(Duration::from_micros(300));
            for counts in session.counts() {
                assert!(counts.running_ns <= counts.enabled_ns, "{counts:?}");
                assert!(counts.values[0] <= counts.running_ns, "{counts:?}");
            }
        }
    });
    assert!(steady.counts()[0].values[0] > 0);
    assert_eq!(steady.counts()[0].threads, 2, "each worker once, however many sessions came");
}

#[test]
fn a_switch_allocates_nothing() {
    let (_alone, tree) = (alone(), tree());
    let deep = group(&tree, "/a/b/c/d/e/f/g");
    let other = group(&tree, "/a/b/x");
    let wanted = [Some(&deep), Some(&other), deep.parent(), Some(tree.root()), None];
    let _session = Session::open(wanted.map(|group| (group, events("task-clock"))));
    // The first one opens the events.
    deep.run(|| ());
    let count = allocation_counter::measure(|| {
        for _ in 0..1000 {
            let _deep = deep.enter();
            other.run(|| black_box(()));
        }
        burn(6_000_000);
        other.run(|| ());
    });
    assert_eq!(count.count_total, 0);
}

#[test]
fn futures_are_counted_on_whatever_thread_they_run() {
    let (_alone, tree) = (alone(), tree());
    let web = group(&tree, "/web");
    let session = Session::open([(Some(&web), events("task-clock"))]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build();
    runtime.expect("a runtime").block_on(async {
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let work = async {
                    for _ in 0..10 {
                        burn(20_000);
                        tokio::task::yield_now().await;
                    }
                };
                tokio::spawn(work.in_group(&web))
            })
            .collect();
        for task in tasks {
            task.await.expect("ran");
        }
    });
    let used = session.counts()[0].values[0];
    assert!(used >= 20 * 10 * 20_000, "{used}");
}

/// Notes what it is told.
struct Notes(Arc<Mutex<Vec<String>>>);

impl Observer for Notes {
    fn switched(&mut self, left: Option<&Group>, entered: Option<&Group>, _: u64) {
        let name = |group: Option<&Group>| group.map_or("-", Group::name).to_owned();
        let note = format!("{}>{}", name(left), name(entered));
        // Of no effect from in here.
        if let Some(group) = entered {
            let _inside = group.enter();
            assert_eq!(switch::current(), None);
        }
        assert_ne!(note, "a>boom", "an observer that panics");
        self.0.lock().push(note);
    }
}

#[test]
fn observers_see_each_switch_once_and_one_that_panics_is_dropped() {
    let (_alone, tree) = (alone(), tree());
    let [a, b, boom] = ["/a", "/b", "/boom"].map(|path| group(&tree, path));
    let notes = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&notes);
    let outside = a.enter();
    let failed = switch::failed_observers();
    let me = std::thread::current().id();
    let observation = switch::observe(move |_| {
        // Other tests of this process switch too.
        let mine = std::thread::current().id() == me;
        mine.then(|| Box::new(Notes(Arc::clone(&given))) as Box<dyn Observer>)
    });
    b.run(|| b.run(|| a.run(|| ())));
    assert_eq!(notes.lock().split_off(0), ["->b", "b>a", "a>b", "b>a"]);
    boom.run(|| assert_eq!(switch::current(), Some(boom.clone())));
    assert_eq!(switch::failed_observers(), failed + 1);
    b.run(|| ());
    assert!(notes.lock().is_empty(), "it is gone");
    drop((observation, outside));
    assert_eq!(switch::current(), None);
}
