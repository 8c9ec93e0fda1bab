//! A forked child counts for itself, starting from its parent's counts.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "forks")]

#[path = "common/about.rs"]
mod about;
#[path = "common/fork.rs"]
mod fork;
#[path = "../../../crates/submeter/tests/it/work.rs"]
#[expect(dead_code, reason = "shared with tests that also need page faults")]
mod work;

use std::sync::mpsc;

use about::{SLACK_NS, about};
use submeter::perf::{Request, RequestCounts, RequestState, Session, parse};
use submeter::switch;
use submeter::{Schema, Tree};
use work::burn_ms;

/// Returns whether an event counts, or cannot count on this machine.
fn counts_or_cannot(counts: &RequestCounts) -> bool {
    matches!(counts.state(), RequestState::Counting | RequestState::NotSupported(_))
}

#[test]
fn a_forked_child_continues_with_its_own_copy() {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    let clock = &parse("task-clock").expect("valid")[0];
    let faults = &parse("page-faults:u").expect("valid")[0];
    let requests = [
        Request::group(&a, clock.clone()),
        Request::group(&b, clock.clone()),
        Request::everywhere(clock.clone()),
        Request::group(&b, faults.clone()),
    ];
    let session = Session::open(&tree, requests);
    let values = || session.counts().iter().map(|counts| counts.values()[0]).collect::<Vec<_>>();
    // Another thread, whose counts the child inherits but which does not exist there.
    let (stop, stopped) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let other = std::thread::spawn({
        let b = b.clone();
        move || {
            b.run(|| burn_ms(5));
            ready.send(()).expect("received");
            let _ = stopped.recv();
        }
    });
    is_ready.recv().expect("sent");
    let mut entered = Some(a.enter());
    let before_fork = burn_ms(10);
    switch::park();
    let at_fork = values();
    assert!(at_fork[0] + SLACK_NS >= before_fork && at_fork[1] + SLACK_NS >= 5_000_000);
    // It takes no lock that the other thread may hold, which only waits.
    let passed = fork::in_a_fork(|| {
        let used_a = burn_ms(20);
        let used_b = b.run(|| burn_ms(10));
        drop(entered.take());
        switch::park();
        let now = values();
        let right = about(now[0] - at_fork[0], used_a)
            && about(now[1] - at_fork[1], used_b)
            && now[2] - at_fork[2] >= used_a + used_b - SLACK_NS
            && session.counts().iter().all(counts_or_cannot);
        if !right {
            eprintln!("{at_fork:?} {now:?} {used_a} {used_b}");
        }
        right
    });
    assert!(passed);
    drop(entered);
    stop.send(()).expect("received");
    other.join().expect("no panic");
    let now = values();
    assert_eq!(now[1], at_fork[1], "the parent does not count the child's work");
    assert_eq!(session.threads(), 2);
}
