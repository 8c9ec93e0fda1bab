//! The promises of the protocol, over thousands of random schedules of faults.
//!
//! `SUBMETER_BANK_SCHEDULES=1000000` asks for more than the usual; `tests/record` has the results.

use crate::world::{Violation, Without, World};

fn schedules() -> u64 {
    let asked = std::env::var("SUBMETER_BANK_SCHEDULES").ok();
    asked.map_or(if cfg!(miri) { 1 } else { 2_000 }, |n| n.parse().expect("a number"))
}

#[test]
fn no_schedule_of_faults_exceeds_a_limit_or_strands_a_lease() {
    let mut admitted = 0;
    for seed in 0..schedules() {
        let mut world = World::new(seed, Without::Nothing);
        if let Err(violation) = world.run() {
            panic!("seed {seed}: {violation:?}");
        }
        admitted += world.admitted;
    }
    // A bank that lends nothing would keep every limit.
    println!("{} schedules, {admitted} charges admitted", schedules());
    assert!(admitted > schedules() * 10, "only {admitted} charges were admitted");
}

/// Looks for a schedule in which the rule is missed, and returns how it was noticed.
fn noticed(without: Without) -> Violation {
    (0..2_000)
        .find_map(|seed| World::new(seed, without).run().err())
        .unwrap_or_else(|| panic!("nothing notices that {without:?} is missing"))
}

#[test]
fn every_rule_of_the_protocol_is_needed() {
    if cfg!(miri) {
        println!("skipped: thousands of schedules, run without Miri");
        return;
    }
    for without in [
        Without::LastAnswerOnly,
        Without::EarlyEnd,
        Without::ShrinkFirst,
        Without::CountOfWhatIsHad,
        Without::Sequence,
        Without::Learning,
        Without::WallClock,
        Without::Floors,
    ] {
        let violation = noticed(without);
        assert!(matches!(violation, Violation::Overshoot { .. }), "{without:?}: {violation:?}");
    }
}
