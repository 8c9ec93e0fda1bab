//! The program of the README: tenants, a limit, and a total that outlives its tenant.

use submeter::{Bytes, Count, Schema, Tree};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What is measured, for every group of the tree.
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let memory = schema.resource::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build()?)?;

    // Resolve a tenant once; then an update is about one add, without lock, syscall or allocation.
    let web = tree.get_or_create("/acme/web")?;
    web.add(requests, 1);

    // A limit holds for everything below it; a charge is given back when it is dropped.
    tree.get_or_create("/acme")?.set_limit(memory, Some(1 << 20));
    let buffer = web.try_charge(memory, 4096)?;
    let refused = web.try_charge(memory, 1 << 20).expect_err("the parent's limit");
    println!("{refused}");

    // A parent is the sum of its children, of those that are gone too.
    drop(buffer);
    web.kill()?;
    assert_eq!(tree.root().sum(requests), 1);
    Ok(())
}
