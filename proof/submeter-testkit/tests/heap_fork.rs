//! A forked child counts its allocations in its own copy of the tree, although threads of its
//! parent that do not exist in the child were in the middle of allocating.
#![cfg(not(miri))]

use std::alloc::System;

use submeter::{Schema, Tree};
use submeter_alloc::{Metered, Volume};

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

use beside::beside;
use fork::found_in_a_fork;
use met::until_met;

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

/// A forked child counts for itself while others allocate.
#[test]
fn a_forked_child_counts_for_itself() {
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let [own, others] = ["/own", "/others"].map(|path| tree.create(path).expect("new"));
    let allocates = || others.run(|| drop(vec![0_u8; 100]));
    let mut forks = 0;
    beside(&[&allocates, &allocates], |amid| {
        until_met(50, || {
            forks += 1;
            let mut entered = Some(own.enter());
            let mut before = Some(std::hint::black_box(vec![0_u8; 1_000]));
            let met = found_in_a_fork(|| {
                let amid = amid();
                drop(before.take());
                drop(vec![0_u8; 50]);
                drop(entered.take());
                // No thread flushed at the fork: no lock is held by a thread that the child does
                // not have.
                let sum = |counter| own.sum(counter);
                let all = forks * 1_000 + 50;
                let right = [heap.allocated_bytes, heap.freed_bytes].map(sum) == [all; 2];
                right.then_some(amid)
            });
            drop(before);
            drop(entered);
            met.unwrap_or_else(|| panic!("fork {forks}"))
        });
    });
    let sum = own.sum(heap.allocated_bytes);
    assert_eq!(sum, 1_000 * forks, "the parent is not charged for its children");
    assert_eq!(others.sum(heap.allocated_blocks), others.sum(heap.freed_blocks));
}
