//! A forked child stays in the group of the thread that forked, in its own copy of the tree.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "forks")]

#[path = "common/fork.rs"]
mod fork;
#[path = "../../../crates/submeter/tests/it/work.rs"]
mod work;

use submeter::switch;
use submeter::{Schema, Tree, perf};
use work::{burn_ms, fault, pages_are_small};

#[test]
fn a_forked_child_is_charged_in_its_own_copy() {
    const SLACK_NS: u64 = 3_000_000;
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let faults = perf::parse("page-faults:u").expect("valid")[0].events()[0];
    let faults = schema.event("faults", "Page faults", &faults);
    if let Err(error) = &faults {
        eprintln!("skipped: {error}");
    }
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let (a, b) = (tree.create("/a").expect("new"), tree.create("/b").expect("new"));
    let mut entered = Some(a.enter());
    let before_fork = burn_ms(10);
    let passed = fork::in_a_fork(|| {
        let in_a = burn_ms(20);
        // Counts the faults of this process, although its descriptors belong to the parent.
        let in_b = b.run(|| (burn_ms(10), fault(1000)).0);
        drop(entered.take());
        tree.flush();
        let (faults, group_b) = (faults.ok(), &b);
        let (a, b) = (a.read(cpu).value, group_b.read(cpu).value);
        // CPU time that the parent had not yet charged stays with the parent; what it had charged
        // is in the copy.
        a + SLACK_NS >= in_a
            && a <= before_fork + in_a + in_a / 5 + SLACK_NS
            && b + SLACK_NS >= in_b
            && switch::current().is_none()
            && tree.cpu_balance().is_none()
            && faults.is_none_or(|faults| {
                !pages_are_small() || (1000..2000).contains(&group_b.read(faults).value)
            })
    });
    assert!(passed);
    let after_fork = burn_ms(10);
    drop(entered);
    let (charged, used) = (a.sum(cpu), before_fork + after_fork);
    assert!(charged + SLACK_NS >= used, "{charged} charged of {used}");
    assert!(charged <= used + used / 5 + SLACK_NS, "{charged} charged for {used}");
    assert_eq!(b.read(cpu).value, 0, "the parent is not charged for the child's work");
}
