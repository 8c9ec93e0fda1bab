//! What blocks cost with the system's allocator as it is.

use submeter::{Schema, Tree};

#[path = "common/cost.rs"]
mod cost;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    assert!(!submeter_alloc::is_linked() && !submeter_alloc::Exact::<()>::is_linked());
    cost::show(&Tree::new(Schema::builder().build()?)?);
    Ok(())
}
