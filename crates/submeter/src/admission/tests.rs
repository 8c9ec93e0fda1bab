//! The public interface of the queue keeps its promises.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use submeter_percpu::slots::Line;

use super::{Admission, AdmissionError, Admitted, Admitting};
use crate::{Group, Schema, Tree};

/// Longer than any machine takes for something that should happen at once.
const LONG: Duration = Duration::from_secs(30);

pub(super) fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("a schema")).expect("a tree")
}

/// Returns a tree in which work costs CPU time.
pub(super) fn timed_tree() -> Tree {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time used");
    Tree::new(schema.build().expect("a schema")).expect("a tree")
}

pub(super) fn poll(acquire: &mut Pin<&mut Admitting>) -> Poll<Result<Admitted, AdmissionError>> {
    acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) fn waits(admission: &Admission, group: &Group) -> Pin<Box<Admitting>> {
    let mut acquire = Box::pin(admission.acquire(group));
    assert!(poll(&mut acquire.as_mut()).is_pending());
    acquire
}

pub(super) fn admitted(acquire: &mut Pin<Box<Admitting>>) -> Option<Admitted> {
    match poll(&mut acquire.as_mut()) {
        Poll::Ready(admitted) => Some(admitted.expect("let in")),
        Poll::Pending => None,
    }
}

// ---- faces -------------------------------------------------------------------------------------

/// A free place goes to a waiter, and a waiter that is dropped hands it on.
#[test]
fn a_free_place_is_for_who_waits() {
    let (tree, admission) = (tree(), Admission::new(1));
    let held = admission.try_acquire(tree.root()).expect("free");
    let [mut first, mut second] = [0; 2].map(|_| waits(&admission, tree.root()));
    drop(held);
    assert!(admission.try_acquire(tree.root()).is_err_and(|error| error.is_late()));
    assert!(admitted(&mut second).is_none(), "another was first");
    // It was admitted by then, and has not been polled since.
    drop(first);
    first = second;
    assert!(admitted(&mut first).is_some());
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    assert_eq!(admission.shared.with(|fair| fair.nodes()), Some(0), "nothing is left behind");
}

/// With a limit on any group all admissions take the lock; the bounds apply to waiters only.
#[test]
fn bounds_on_waits_refuse_nobody_who_need_not() {
    let tree = tree();
    let [limited, other] = ["/limited", "/other"].map(|path| tree.create(path).expect("new"));
    let admission = Admission::builder(4).waiting_max(1).waiting_max_by_group(0).build();
    admission.set_group_limit(&limited, Some(1));
    let first = admission.try_acquire(&limited).expect("one may be in flight");
    assert!(admission.try_acquire(&limited).is_err());
    let others: Vec<_> = (0..3).map(|_| admission.try_acquire(&other)).collect();
    assert!(others.iter().all(Result::is_ok), "3 places are free");
    assert!(admission.try_acquire(&other).is_err());
    drop(first);
    assert!(admission.try_acquire(&other).is_ok());
}

/// Waits end with the kill of their group and hold up no release.
#[test]
fn waits_end_with_the_kill_of_their_group() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.get_or_create("/acme/web").expect("new");
    let mail = tree.get_or_create("/acme/mail").expect("new");
    admission.set_weight(&mail, Some(7)).expect("in range");
    admission.set_group_limit(&mail, Some(7));
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut waiting = [&web, &web, &mail].map(|group| waits(&admission, group));
    let killed = tree.get("/acme").expect("above").kill_subtree().expect("alive");
    for acquire in &mut waiting {
        let ended = match poll(&mut acquire.as_mut()) {
            Poll::Ready(ended) => ended.expect_err("killed"),
            Poll::Pending => panic!("it ends at once"),
        };
        assert!(ended.is_killed() && ended.retry_after().is_none());
    }
    assert!(admission.try_acquire(&web).is_err_and(|error| error.is_killed()));
    assert_eq!((admission.waiting(), admission.weight(&mail)), (0, None));
    drop((waiting, web, mail));
    for killed in &killed {
        killed.released_blocking(LONG).expect("nothing holds it");
    }
    drop(held);
    assert!(admission.try_acquire(tree.root()).is_ok(), "one exchange again");
    assert_eq!(admission.shared.with(|fair| fair.is_needed()), Some(false));
}

/// A subtree that is killed has none of its work admitted, although its limit ends with it.
#[test]
fn a_killed_limit_admits_nothing_below_it() {
    let (tree, admission) = (tree(), Admission::new(8));
    let web = tree.get_or_create("/acme/web").expect("new");
    let acme = tree.get("/acme").expect("above");
    admission.set_group_limit(&acme, Some(1));
    let held = admission.try_acquire(&web).expect("free");
    let mut waiting = [(); 5].map(|()| waits(&admission, &web));
    let killed = acme.kill_subtree().expect("alive");
    for acquire in &mut waiting {
        let Poll::Ready(ended) = poll(&mut acquire.as_mut()) else { panic!("it ends at once") };
        assert!(ended.is_err_and(|error| error.is_killed()));
    }
    drop((waiting, held, web, acme));
    for killed in &killed {
        killed.released_blocking(LONG).expect("nothing holds it");
    }
}

#[test]
fn a_group_killed_while_it_is_weighed_is_let_go() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.create("/web").expect("new");
    admission.set_weight(&web, Some(7)).expect("in range");
    let killed = web.kill().expect("alive");
    admission.set_weight(&web, Some(9)).expect("in range");
    assert_eq!(admission.weight(&web), None, "nothing would end it");
    drop(web);
    killed.released_blocking(LONG).expect("the queue has let go of it");
}

#[test]
fn a_queue_that_is_dropped_lets_go_of_all_groups() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.create("/web").expect("new");
    admission.set_weight(&web, Some(7)).expect("in range");
    drop(admission);
    assert_eq!(web.inner.extras.kill_waits().count(), 0);
    let killed = web.kill().expect("alive");
    drop(web);
    killed.released_blocking(LONG).expect("nothing holds it");
}

/// A tenant that fills the queue displaces itself, whether it waits in one group or in many.
#[test]
fn who_fills_the_queue_takes_no_others_places() {
    for path in [|_| "/heavy".to_owned(), |n| format!("/heavy/{n}")] as [fn(u32) -> String; 2] {
        let (tree, admission) = (tree(), Admission::builder(1).waiting_max(4).build());
        let heavy: Vec<_> = (0..5).map(|n| tree.get_or_create(&path(n)).expect("a path")).collect();
        let light = tree.create("/light").expect("new");
        let _held = admission.try_acquire(tree.root()).expect("free");
        let mut of_heavy: Vec<_> = heavy[..4].iter().map(|it| waits(&admission, it)).collect();
        let mut fifth = pin!(admission.acquire(&heavy[4]));
        assert!(matches!(poll(&mut fifth), Poll::Ready(Err(error)) if error.is_full()));
        let of_light: Vec<_> = (0..2).map(|_| waits(&admission, &light)).collect();
        let mut third = pin!(admission.acquire(&light));
        assert!(matches!(poll(&mut third), Poll::Ready(Err(error)) if error.is_full()));
        let ended = of_heavy.iter_mut().map(|acquire| match poll(&mut acquire.as_mut()) {
            Poll::Ready(ended) => ended.is_err_and(|error| error.is_full_for_group()),
            Poll::Pending => false,
        });
        let ended: Vec<_> = ended.collect();
        assert_eq!(ended, [false, false, true, true], "the latest of the longest");
        let of_heavy = tree.get("/heavy").expect("it is there");
        assert_eq!((admission.waiting_in(&of_heavy), of_light.len()), (2, 2));
    }
}

#[test]
fn what_is_late_is_never_let_in() {
    let (tree, admission) = (tree(), Admission::new(1));
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut late = Box::pin(admission.acquire(tree.root()).max_wait(Duration::from_millis(1)));
    assert!(poll(&mut late.as_mut()).is_pending());
    let mut patient = waits(&admission, tree.root());
    std::thread::sleep(Duration::from_millis(2));
    drop(held);
    let turn = admitted(&mut patient).expect("the one before it was late");
    assert!(matches!(poll(&mut late.as_mut()), Poll::Ready(Err(error)) if error.is_late()));
    drop(turn);
    // A deadline that has passed means a last attempt; one beyond the clock's range means none.
    let at_once = admission.acquire_blocking(tree.root(), Duration::ZERO);
    assert!(at_once.is_ok());
    let again = admission.acquire_blocking(tree.root(), Duration::from_millis(1));
    assert!(again.is_err_and(|error| error.is_late()), "it asks inside of what was let in");
    drop(at_once);
    assert!(admission.acquire_blocking(tree.root(), Duration::MAX).is_ok());
}

/// The queue once ignored such a deadline, and the future waited forever.
#[test]
fn a_deadline_that_is_set_while_it_waits_is_kept() {
    let (tree, admission) = (tree(), Admission::new(1));
    let held = admission.try_acquire(tree.root()).expect("free");
    let waiting = *Pin::into_inner(waits(&admission, tree.root()));
    let mut at_once = Box::pin(waiting.max_wait(Duration::ZERO));
    assert!(matches!(poll(&mut at_once.as_mut()), Poll::Ready(Err(error)) if error.is_late()));
    drop(held);
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
}

/// A group's limit holds below it and leaves places to others.
#[test]
fn a_groups_limit_holds_below_it_only() {
    let (tree, admission) = (tree(), Admission::new(8));
    let [x, y, other] = ["/a/x", "/a/y", "/o"].map(|path| tree.get_or_create(path).expect("new"));
    let a = x.parent().expect("above").clone();
    admission.set_group_limit(&a, Some(2));
    let held = [&x, &y].map(|group| admission.try_acquire(group).expect("two"));
    let mut third = waits(&admission, &x);
    let others: Vec<_> = (0..6).map(|_| admission.try_acquire(&other)).collect();
    assert!(others.iter().all(Result::is_ok), "who waits for its own limit holds up nobody");
    drop(others);
    assert!(admitted(&mut third).is_none());
    admission.set_group_limit(&a, Some(3));
    let third = admitted(&mut third).expect("another place");
    assert_eq!(admission.group_limit(&a), Some(3));
    admission.set_group_limit(&a, None);
    assert!(admission.try_acquire(&x).is_ok());
    drop((held, third));
}

#[test]
fn bad_input_is_refused_or_does_what_it_says() {
    let (tree, admission) = (tree(), Admission::new(0));
    let web = tree.create("/web").expect("new");
    assert!(admission.try_acquire(&web).is_err_and(|error| error.is_late()), "nothing is let in");
    for weight in [0, 10_001] {
        let error = admission.set_weight(&web, Some(weight)).expect_err("out of range");
        assert!(error.to_string().contains("use 1 to 10000"));
    }
    assert_eq!(admission.weight(&web), None);
    let mut waiting = waits(&admission, &web);
    admission.set_group_limit(&web, Some(0));
    admission.set_limit(1);
    assert!(admitted(&mut waiting).is_none(), "its group's limit is 0");
    admission.set_group_limit(&web, None);
    assert!(admitted(&mut waiting).is_some());
    admission.set_limit(u32::MAX);
    assert_eq!(admission.limit(), super::SLOTS_MAX);
}

#[test]
fn a_refusal_names_nobody_else_to_the_tenant() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(1).build());
    let [web, secret] = ["/web", "/secret"].map(|path| tree.create(path).expect("new"));
    let _held = admission.try_acquire(&secret).expect("free");
    let _waits = waits(&admission, &secret);
    let refused = admission.acquire_blocking(&web, LONG).expect_err("one may wait");
    assert_eq!(refused.to_string(), "overloaded: the queue is full");
    let detail = "/web: overloaded: the queue is full; 1 of 1 in flight, 1 waiting, 0 of them in \
                  this group";
    assert_eq!(refused.detail().to_string(), detail);
}

#[test]
fn a_refusal_says_how_fast_places_come_free() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(2).build());
    let mut held = admission.try_acquire(tree.root()).expect("free");
    for _ in 0..4 {
        let mut next = waits(&admission, tree.root());
        let _another = waits(&admission, tree.root());
        drop(held);
        held = admitted(&mut next).expect("it was first");
    }
    let _waiting = [0; 2].map(|_| waits(&admission, tree.root()));
    let refused = admission.acquire_blocking(tree.root(), LONG).expect_err("two may wait");
    assert!(refused.retry_after().is_some_and(|after| after < LONG));
}

// ---- threads -----------------------------------------------------------------------------------

/// Threads that come, go and give up lose nothing.
#[test]
fn threads_that_come_and_go_lose_nothing_stress() {
    const THREADS: usize = 8;
    const PLACES: u32 = 3;
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let (tree, admission) = (tree(), Admission::builder(PLACES).waiting_max(6).build());
    let groups = ["/a/x", "/a/y", "/b"].map(|path| tree.get_or_create(path).expect("new"));
    let (inside, turns) = (AtomicU64::new(0), &AtomicU64::new(0));
    let all = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (admission, groups, inside, all) = (&admission, &groups, &inside, &all);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread as u64);
                let work = |admitted: Admitted| {
                    // Relaxed, all of them: the test is about the places.
                    assert!(inside.fetch_add(1, Ordering::Relaxed) < u64::from(PLACES));
                    turns.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    drop(admitted);
                };
                all.wait();
                for _ in 0..rounds {
                    let group = &groups[rng.usize(0..groups.len())];
                    match rng.u32(0..8) {
                        0..3 => {
                            // Given up at once, admitted or not.
                            let mut acquire = Box::pin(admission.acquire(group));
                            _ = poll(&mut acquire.as_mut());
                        }
                        3 => _ = admission.try_acquire(group).map(work),
                        4 => {
                            let timeout = Duration::from_micros(rng.u64(0..50));
                            _ = admission.acquire_blocking(group, timeout).map(work);
                        }
                        5 if rng.u32(0..20) == 0 => {
                            let limit = rng.bool().then_some(1);
                            admission.set_group_limit(group, limit);
                        }
                        _ => _ = admission.acquire_blocking(group, LONG).map(work),
                    }
                }
            });
        }
    });
    groups.iter().for_each(|group| admission.set_group_limit(group, None));
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    assert_eq!(admission.shared.with(|fair| fair.nodes()), Some(0));
    // Relaxed: the threads have ended.
    assert!(turns.load(Ordering::Relaxed) > 0);
    assert!(admission.try_acquire(&groups[0]).is_ok());
}

/// Work that saw a free place, which another took at that moment, was admitted to the line beyond
/// all bounds.
#[test]
fn nobody_waits_where_none_may_stress() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(0).build());
    let rounds = if cfg!(miri) { 50 } else { 200_000 };
    let (all, met, begun) = (Barrier::new(4), AtomicBool::new(cfg!(miri)), Instant::now());
    // Relaxed, and below: a flag that publishes nothing else.
    let goes_on = |n| n < rounds || !met.load(Ordering::Relaxed) && begun.elapsed() < LONG;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                all.wait();
                for _ in (0..).take_while(|&n| goes_on(n)) {
                    let mut acquire = pin!(admission.acquire(tree.root()));
                    match poll(&mut acquire) {
                        Poll::Ready(Ok(admitted)) => drop(admitted),
                        Poll::Ready(Err(_)) => met.store(true, Ordering::Relaxed),
                        Poll::Pending => panic!("it waits"),
                    }
                }
            });
        }
    });
    assert!(met.into_inner(), "the place was free each time");
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
}

#[test]
fn kills_end_all_waits_of_threads_stress() {
    let (tree, admission) = (Arc::new(tree()), Admission::new(1));
    for round in 0..if cfg!(miri) { 3 } else { 100 } {
        let web = tree.create("/web").expect("it was killed");
        let held = admission.try_acquire(tree.root()).expect("free");
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..3).map(|_| scope.spawn(|| admission.acquire_blocking(&web, LONG))).collect();
            if round % 2 == 0 {
                while admission.waiting() < 3 {
                    std::thread::yield_now();
                }
            }
            web.kill().expect("alive");
            for waits in waiting {
                let ended = waits.join().expect("no panic");
                assert!(ended.expect_err("killed").is_killed());
            }
        });
        drop(held);
        assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    }
}

/// A queue for the CPUs leaves one of them free, where there is more than one.
#[test]
fn a_queue_for_the_cpus_has_fewer_places() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let places = Admission::for_cpus().limit() as usize;
    assert_eq!(places + 1, cpus.max(2), "at least one");
}
