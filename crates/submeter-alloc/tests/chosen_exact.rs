//! An allocator that becomes exact while the program runs.

use std::alloc::System;

use submeter::{Schema, Tree};
use submeter_alloc::exact::{Exact, Heap};
use submeter_alloc::{Chosen, Live, Sampled, StartError, sampled};

#[path = "common/across.rs"]
mod across;

use across::across;

#[global_allocator]
static HEAP: Chosen<System> = Chosen::new(System);

/// Blocks from before the choice have no owner, and those after it are counted exactly.
#[test]
fn blocks_before_the_choice_are_nobodys() {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let live: Live = tree.declare().expect("room");
    let of_samples: sampled::Live = tree.declare().expect("room");
    let a = tree.create("/a").expect("new");
    let early = a.run(|| vec![0_u8; 100_000]);
    assert!(!Exact::<System>::is_linked() && !Sampled::<System>::is_linked(), "nothing yet");
    let (heap, before) = across(|| Heap::start(&tree, live).expect("the first"));
    assert!(Exact::<System>::is_linked() && !Sampled::<System>::is_linked());
    let held = || {
        heap.flush();
        a.sum(live.bytes)
    };
    let blocks = a.run(|| [vec![0_u8; 1], vec![0; 16], vec![0; 17], vec![0; 100_000]]);
    assert_eq!(held(), 1 + 16 + 17 + 100_000);
    a.run(|| drop((early, before)));
    assert_eq!(held(), 1 + 16 + 17 + 100_000);
    let error = sampled::Heap::start(&tree, of_samples).expect_err("it is exact");
    assert!(matches!(error, StartError::Twice), "{error}");
    drop(blocks);
    assert_eq!(held(), 0);
}
