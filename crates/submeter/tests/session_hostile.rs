//! Sessions under attack: threads that are in a group already, visits in step with the turns, panics, registries that
//! change all the time.

mod session_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use session_support::{CYCLES, Counters, Fixture, fixture, one, work};
use submeter::perf::{Request, RequestState, Session};
use submeter::switch;

/// Opens a session that takes turns at each switch.
fn open(f: &Fixture, counters: usize, requests: Vec<Request>) -> Session {
    let builder = Session::builder().interval(Duration::ZERO);
    builder.open_with(&f.tree, requests, move || Counters::new(counters))
}

#[test]
fn a_thread_that_parks_in_a_group_is_followed_there() {
    let f = fixture();
    let requests = [&f.x, &f.a].map(|group| Request::group(group, one("cycles")));
    let in_x = f.x.enter();
    let session = open(&f, 4, requests.into());
    work(CYCLES, 1);
    switch::park();
    work(CYCLES, 10);
    switch::park();
    let values = || session.counts().iter().map(|counts| counts.values()[0]).collect::<Vec<_>>();
    assert_eq!(values(), [10, 10], "what was done after it was first followed");
    work(CYCLES, 100);
    drop(in_x);
    work(CYCLES, 1000);
    switch::park();
    assert_eq!(values(), [110, 110]);
    assert!(f.x.sum(f.cpu) > 0, "as the group is charged");
}

#[test]
fn rotation_starves_nobody_in_visits_that_last_a_turn_each() {
    let f = fixture();
    let lists = ["cycles", "instructions"];
    let of = |group| lists.map(|list| Request::group(group, one(list)));
    let session = open(&f, 1, [of(&f.x), of(&f.y)].concat());
    for _ in 0..20 {
        for group in [&f.x, &f.y] {
            group.run(|| session_support::burn(Duration::from_micros(200)));
        }
    }
    for counts in session.counts() {
        let (running, enabled) = (counts.running_ns(), counts.enabled_ns());
        assert!(running >= enabled / 5, "{running} of {enabled} ns: {counts:?}");
    }
}

#[test]
fn the_next_switch_is_counted_while_others_come_and_go() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let f = fixture();
    let done = AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: they only stop some time after.
                while !done.load(Ordering::Relaxed) {
                    drop(switch::observe(|_| None));
                }
            });
        }
        let missed = (0..ROUNDS).filter(|_| {
            let session = open(&f, 1, vec![Request::group(&f.b, one("cycles"))]);
            f.b.run(|| work(CYCLES, 1));
            let missed = *session.counts()[0].state() != RequestState::Counting;
            drop(session);
            missed
        });
        let missed = missed.count();
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, 0, "of {ROUNDS} sessions");
}
