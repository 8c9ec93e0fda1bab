//! What blocks cost where it is counted who allocates.

use std::alloc::System;

use submeter::{Schema, Tree};
use submeter_alloc::{Metered, Volume};

#[path = "common/cost.rs"]
mod cost;

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    assert!(submeter_alloc::is_linked());
    let mut schema = Schema::builder();
    let _: Volume = schema.declare();
    cost::show(&Tree::new(schema.build()?)?);
    Ok(())
}
