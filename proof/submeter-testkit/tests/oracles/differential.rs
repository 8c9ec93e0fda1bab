//! Random scripts on a tree and on its oracle: they must agree after every step.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use submeter_testkit::{Differential, Op, TestSchema, Update, script};

/// Under Miri a step costs about a thousand times as much, and there are no files. `PROPTEST_CASES`
/// asks for more than the usual 256.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig { cases: 1, failure_persistence: None, ..ProptestConfig::default() }
    } else {
        let beside = Box::new(FileFailurePersistence::WithSource("regressions"));
        // Half of the cases for each of the two trees.
        let cases = ProptestConfig::default().cases.div_ceil(2);
        ProptestConfig {
            cases,
            failure_persistence: Some(beside),
            // Enough to shrink a dozen operations with eight choices each.
            max_shrink_iters: 10_000,
            ..ProptestConfig::default()
        }
    }
}

const LEN_MAX: usize = if cfg!(miri) { 12 } else { 150 };

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_tree_agrees_with_its_oracle(script in script(LEN_MAX)) {
        Differential::script(TestSchema::new(), &script);
    }

    #[test]
    fn a_tree_of_two_sections_agrees_with_its_oracle(script in script(LEN_MAX)) {
        Differential::script(TestSchema::split(), &script);
    }
}

/// A fixed script, because random ones rarely reach this order.
#[test]
fn a_killed_group_counts_charges_and_is_replaced() {
    let add = |at, n| Op::Update { at, update: Update::Add { counter: 0, n } };
    Differential::script(
        TestSchema::split(),
        &[
            Op::Create { at: 0, name: "a" },
            Op::Create { at: 1, name: "b" },
            Op::SetLimit { at: 1, quota: 0, limit: Some(10) },
            Op::Charge { at: 2, quota: 0, n: 7 },
            add(2, 3),
            Op::Kill { at: 2 },
            add(2, 4),
            Op::Charge { at: 2, quota: 0, n: 3 },
            Op::Charge { at: 2, quota: 0, n: 1 },
            Op::Create { at: 1, name: "b" },
            Op::Charge { at: 3, quota: 0, n: 1 },
            Op::Sum { at: 1 },
            Op::DropHandle { at: 2 },
            Op::Snapshot,
            Op::DropCharge { charge: 0 },
            Op::Charge { at: 2, quota: 0, n: 7 },
            Op::Snapshot,
        ],
    );
}

#[test]
fn a_charge_refused_above_raises_no_peak_below() {
    Differential::script(
        TestSchema::split(),
        &[
            Op::Create { at: 0, name: "a" },
            Op::SetLimit { at: 0, quota: 1, limit: Some(10) },
            Op::Charge { at: 1, quota: 1, n: 11 },
            Op::Resize { charge: 0, amount: 0 },
            Op::Charge { at: 1, quota: 1, n: u64::MAX },
            Op::Snapshot,
        ],
    );
}
