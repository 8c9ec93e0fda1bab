//! Random scripts of operations on a tree.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::meters::{COUNTERS, RESOURCES};

/// Is one operation. `at` and `charge` pick among what exists when it is carried out, so that a
/// script stays meaningful when it is shrunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as in `Oracle`")]
pub enum Op {
    /// Creates a child.
    Create { at: u16, name: &'static str },
    /// Finds or creates a path of names from the root.
    Path { names: Vec<&'static str> },
    /// Looks a group up by its path, whether a handle is held or not.
    Find { at: u16 },
    /// Kills.
    Kill { at: u16 },
    /// Kills with everything below.
    KillSubtree { at: u16 },
    /// Drops the handle, if one is held.
    DropHandle { at: u16 },
    /// Adds to a counter.
    Add { at: u16, counter: usize, n: u64 },
    /// Moves the gauge.
    Adjust { at: u16, delta: i64 },
    /// Records in the histogram.
    Record { at: u16, value: u64 },
    /// Notes a visit with the collector.
    Visit { at: u16, length: u64 },
    /// Charges, and keeps the charge.
    Charge { at: u16, resource: usize, n: u64 },
    /// Resizes a charge.
    Resize { charge: u16, amount: u64 },
    /// Drops a charge.
    DropCharge { charge: u16 },
    /// Sets or lifts a limit.
    SetLimit { at: u16, resource: usize, limit: Option<u64> },
    /// Flushes.
    Flush,
    /// Flushes one set of metrics.
    FlushSet { set: u16 },
    /// Flushes a group and what is below it.
    FlushBelow { at: u16 },
    /// Reads, with a flush if the value may be off by more.
    ReadWithin { at: u16, error: u64 },
    /// Reads without a flush: value and bound.
    Read { at: u16 },
    /// Reads exactly.
    Sum { at: u16 },
    /// Reads what was collected, exactly.
    SumVisits { at: u16 },
    /// Copies the tree.
    Snapshot,
}

/// Few, so that they meet again.
const NAMES: [&str; 4] = ["a", "b", "c", "other"];

/// Each breaks another rule.
const BAD_NAMES: [&str; 5] = ["", ".", "..", "a/b", "a\u{7}"];

/// Generates scripts of up to `len_max` operations.
pub fn script(len_max: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..=len_max)
}

fn op() -> impl Strategy<Value = Op> {
    let at = any::<u16>;
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        6 => (at(), name()).prop_map(|(at, name)| Op::Create { at, name }),
        1 => (at(), prop::sample::select(&BAD_NAMES[..]))
            .prop_map(|(at, name)| Op::Create { at, name }),
        2 => vec(name(), 0..4).prop_map(|names| Op::Path { names }),
        2 => at().prop_map(|at| Op::Find { at }),
        4 => at().prop_map(|at| Op::Kill { at }),
        1 => at().prop_map(|at| Op::KillSubtree { at }),
        3 => at().prop_map(|at| Op::DropHandle { at }),
        8 => (at(), 0..COUNTERS, amount()).prop_map(|(at, counter, n)| Op::Add { at, counter, n }),
        4 => (at(), -1000..1000i64).prop_map(|(at, delta)| Op::Adjust { at, delta }),
        4 => (at(), 0..100u64).prop_map(|(at, value)| Op::Record { at, value }),
        3 => (at(), 0..100u64).prop_map(|(at, length)| Op::Visit { at, length }),
        8 => charge(),
        2 => (at(), 0..60u64).prop_map(|(charge, amount)| Op::Resize { charge, amount }),
        3 => at().prop_map(|charge| Op::DropCharge { charge }),
        3 => limit(),
        2 => Just(Op::Flush),
        1 => at().prop_map(|set| Op::FlushSet { set }),
        2 => at().prop_map(|at| Op::FlushBelow { at }),
        2 => (at(), 0..200u64).prop_map(|(at, error)| Op::ReadWithin { at, error }),
        3 => at().prop_map(|at| Op::Read { at }),
        2 => at().prop_map(|at| Op::Sum { at }),
        1 => at().prop_map(|at| Op::SumVisits { at }),
        1 => Just(Op::Snapshot),
    ]
}

/// Small, zero, and too large for 32 bits; a thousand of the largest still fit in 63.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..50u64, 1 => Just(0), 1 => (1u64 << 31)..(1 << 50)]
}

/// Mostly near the limits that are set; sometimes such that a sum would overflow.
fn charge() -> impl Strategy<Value = Op> {
    let n = prop_oneof![12 => 0..50u64, 1 => (u64::MAX - 2)..=u64::MAX];
    (any::<u16>(), 0..RESOURCES, n).prop_map(|(at, resource, n)| Op::Charge { at, resource, n })
}

fn limit() -> impl Strategy<Value = Op> {
    let limit = prop::option::weighted(0.8, 0..200u64);
    (any::<u16>(), 0..RESOURCES, limit).prop_map(|(at, resource, limit)| Op::SetLimit {
        at,
        resource,
        limit,
    })
}
