//! An allocator that starts to sample at some moment.

use std::alloc::System;

use submeter::{Schema, Tree};
use submeter_alloc::exact::{self, Exact};
use submeter_alloc::sampled::{Heap, Live};
use submeter_alloc::{Chosen, Sampled, StartError};

#[path = "common/across.rs"]
mod across;

use across::across;

#[global_allocator]
static HEAP: Chosen<System> = Chosen::new(System);

/// Blocks from before the choice have no owner, and those after it are known or sampled.
#[test]
fn blocks_before_the_choice_are_nobodys() {
    const SMALL: usize = 2_000;
    let blocks = if cfg!(miri) { 200 } else { 10_000 };
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let live: Live = tree.declare().expect("room");
    let of_exact: submeter_alloc::Live = tree.declare().expect("room");
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    let early = a.run(|| vec![0_u8; 100_000]);
    assert!(!Exact::<System>::is_linked() && !Sampled::<System>::is_linked(), "nothing yet");
    let (heap, before) = across(|| Heap::start(&tree, live).expect("the first"));
    assert!(Sampled::<System>::is_linked() && !Exact::<System>::is_linked());
    let large = a.run(|| vec![0_u8; 100_000]);
    let small: Vec<Vec<u8>> = (0..blocks).map(|_| b.run(|| Vec::with_capacity(SMALL))).collect();
    a.run(|| drop((early, before)));
    heap.flush();
    assert_eq!((a.sum(live.bytes), a.sum(live.samples)), (100_000, 0));
    let far = b.sum(live.bytes).abs_diff((blocks * SMALL) as i64);
    let errors = 5 * live.error_bytes(&b) + 5 * 65_536;
    assert!(b.sum(live.samples) > 0 && far < errors, "{far}, and five errors are {errors}");
    let error = exact::Heap::start(&tree, of_exact).expect_err("it samples");
    assert!(matches!(error, StartError::Twice), "{error}");
    drop((large, small));
    heap.flush();
    assert_eq!(tree.root().sum(live.bytes), 0);
}
