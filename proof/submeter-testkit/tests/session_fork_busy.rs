//! Forks at any moment of a change of observers. In a program of its own, because its children
//! would copy the state of other tests.
#![cfg(not(miri))]

#[path = "common/about.rs"]
mod about;
#[path = "common/beside.rs"]
mod beside;
#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
#[expect(dead_code, reason = "each uses one of its two functions")]
mod fork;
#[path = "../../../crates/submeter-percpu/tests/it/met.rs"]
mod met;
#[path = "../../../crates/submeter-percpu/tests/it/witness.rs"]
#[expect(dead_code, reason = "shared with tests that Miri runs")]
mod witness;
#[path = "../../../crates/submeter/tests/it/work.rs"]
#[expect(dead_code, reason = "shared with tests that also need page faults")]
mod work;

use about::about;
use beside::beside;
use met::until_met;
use submeter::perf::{Request, Session, parse};
use submeter::switch;
use submeter::{Schema, Tree};
use work::burn_ms;

/// Children forked while sessions come and go count what they do.
#[test]
fn children_forked_among_sessions_count() {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let a = tree.create("/a").expect("new");
    let request = Request::group(&a, parse("task-clock").expect("valid").remove(0));
    let session = Session::open(&tree, [request.clone()]);
    a.run(|| ());
    // A child that is wrong does not end the forks: one of many would not say how many are.
    let (mut children, mut wrong) = (0, 0);
    beside(&[&|| drop(switch::observe(|_| None))], |amid| {
        until_met(60, || {
            children += 1;
            let at_fork = session.counts()[0].values()[0];
            let met = fork::found_in_a_fork(|| {
                let amid = amid();
                let used = a.run(|| burn_ms(2)) + a.run(|| burn_ms(2));
                let gained = session.counts()[0].values()[0] - at_fork;
                about(gained, used).then_some(amid)
            });
            wrong += u32::from(met.is_none());
            met == Some(true)
        });
    });
    assert_eq!(wrong, 0, "of {children} children");
}
