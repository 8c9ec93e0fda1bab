//! The promises of the protocol, over thousands of random schedules of faults.
//!
//! `SUBMETER_BANK_SCHEDULES=1000000` runs more than the usual number; `tests/record` has the
//! results.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::world::{Violation, Without, World};

/// This many show that a rule is missing, whichever it is.
const ENOUGH: u64 = 600;

fn schedules() -> u64 {
    let asked = std::env::var("SUBMETER_BANK_SCHEDULES").ok();
    asked.map_or(if cfg!(miri) { 1 } else { ENOUGH }, |n| n.parse().expect("a number"))
}

/// No schedule of faults exceeds a limit or strands a lease.
#[test]
fn no_faults_exceed_a_limit_or_strand_a_lease() {
    let (next, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
    let schedules = schedules();
    let run = || {
        loop {
            // Relaxed, as below: a number for each schedule; the scope orders the rest.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= schedules {
                return;
            }
            let mut world = World::new(seed, Without::Nothing);
            if let Err(violation) = world.run() {
                // Makes the other threads end too.
                next.store(schedules, Ordering::Relaxed);
                panic!("seed {seed}: {violation:?}");
            }
            admitted.fetch_add(world.admitted, Ordering::Relaxed);
            if seed > 0 && seed.is_multiple_of(100_000) {
                println!("{seed} of {schedules} schedules");
            }
        }
    };
    // Schedules are independent, and a million take minutes on each CPU.
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(run);
        }
    });
    let admitted = admitted.into_inner();
    // A bank that lends nothing would keep every limit.
    println!("{schedules} schedules, {admitted} charges admitted");
    assert!(admitted > schedules * 10, "only {admitted} charges were admitted");
}

/// Looks for a schedule in which the rule is missing, and returns the violation.
fn noticed(without: Without) -> Violation {
    (0..ENOUGH)
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
