//! No number is left, in a separate process because they are the process's.

// Too many groups for it.
#![cfg(not(miri))]

use std::alloc::System;
use std::time::Duration;

use submeter::{Group, Schema, Tree};
use submeter_alloc::Live;
use submeter_alloc::exact::{Exact, Heap};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// The numbers of groups that ended after the last one was taken are found soon, without a flush.
#[test]
fn numbers_come_back_once_all_were_taken() {
    const REFUSED_MAX: usize = 1_024;
    let mut schema = Schema::builder();
    let live: Live = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let heap = Heap::start(&tree, live).expect("the first");
    let has_number = |group: &Group| heap.set_limit(group, Some(1)).is_ok();
    let create = |n| tree.create(&format!("/g{n}")).expect("room");
    let mut groups: Vec<Group> = (0..).map(create).take_while(has_number).collect();
    let one_more = create(groups.len() + 1);
    for round in 0..2 {
        assert!(!has_number(&one_more), "{round}: {}", groups.len());
        let group = groups.pop().expect("many");
        let killed = group.kill().expect("no children");
        drop(group);
        killed.released_blocking(Duration::from_secs(60)).expect("no handles");
        let next = create(100_000 + round);
        let refused = (0..=REFUSED_MAX).take_while(|_| !has_number(&next)).count();
        assert!(refused <= REFUSED_MAX, "{round}: {refused} refused");
        groups.insert(0, next);
    }
}
