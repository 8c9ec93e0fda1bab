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
mod fork;

use beside::beside;
use fork::in_a_fork;

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

/// A forked child counts for itself while others allocate.
#[test]
fn a_forked_child_counts_for_itself() {
    const FORKS: usize = 50;
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let [own, others] = ["/own", "/others"].map(|path| tree.create(path).expect("new"));
    let allocates = || others.run(|| drop(vec![0_u8; 100]));
    beside(&[&allocates, &allocates], || {
        for fork in 0..FORKS {
            let mut entered = Some(own.enter());
            let mut before = Some(std::hint::black_box(vec![0_u8; 1_000]));
            let passed = in_a_fork(|| {
                drop(before.take());
                drop(vec![0_u8; 50]);
                drop(entered.take());
                // No thread flushed at the fork: no lock is held by a thread that the child does
                // not have.
                let sum = |counter| own.sum(counter);
                sum(heap.allocated_bytes) == (fork as u64 + 1) * 1_000 + 50
                    && sum(heap.freed_bytes) == (fork as u64 + 1) * 1_000 + 50
            });
            assert!(passed, "fork {fork}");
            drop(before);
            drop(entered);
        }
    });
    let sum = own.sum(heap.allocated_bytes);
    assert_eq!(sum, 1_000 * FORKS as u64, "the parent is not charged for its children");
    assert_eq!(others.sum(heap.allocated_blocks), others.sum(heap.freed_blocks));
}
