//! What blocks cost where it is known who holds them.

use std::alloc::System;

use submeter::{Schema, Tree};
use submeter_alloc::Live;
use submeter_alloc::exact::{Exact, Heap};

#[path = "common/cost.rs"]
mod cost;

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let live: Live = schema.declare();
    let tree = Tree::new(schema.build()?)?;
    // Which fails if another allocator is linked.
    let heap = Heap::start(&tree, live)?;
    cost::show(&tree);
    drop(heap);
    Ok(())
}
