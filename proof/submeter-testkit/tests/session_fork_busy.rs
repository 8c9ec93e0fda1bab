//! Forks at any moment of a change of observers. In a program of its own, because its children
//! would copy the state of other tests.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "forks")]

#[path = "common/about.rs"]
mod about;
#[path = "common/fork.rs"]
mod fork;
#[path = "common/stop.rs"]
mod stop;
#[path = "../../../crates/submeter/tests/it/work.rs"]
#[expect(dead_code, reason = "shared with tests that also need page faults")]
mod work;

use std::sync::atomic::{AtomicBool, Ordering};

use about::about;
use stop::StopOnDrop;
use submeter::perf::{Request, Session, parse};
use submeter::switch;
use submeter::{Schema, Tree};
use work::burn_ms;

/// Children forked while sessions come and go count what they do.
#[test]
fn children_forked_among_sessions_count() {
    const CHILDREN: usize = 60;
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let a = tree.create("/a").expect("new");
    let request = Request::group(&a, parse("task-clock").expect("valid").remove(0));
    let session = Session::open(&tree, [request.clone()]);
    a.run(|| ());
    let stopped = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stopped);
        scope.spawn(|| {
            // Relaxed: it only has to stop eventually.
            while !stopped.load(Ordering::Relaxed) {
                drop(switch::observe(|_| None));
            }
        });
        let wrong = (0..CHILDREN).filter(|_| {
            let at_fork = session.counts()[0].values()[0];
            // All waits of the child have a limit; only this thread uses the session's own lock.
            !fork::in_a_fork(|| {
                let used = a.run(|| burn_ms(2)) + a.run(|| burn_ms(2));
                let gained = session.counts()[0].values()[0] - at_fork;
                about(gained, used)
            })
        });
        wrong.count()
    });
    assert_eq!(wrong, 0, "of {CHILDREN} children");
}
