//! The program of the README: tenants, a limit, and a total that outlives its tenant.

use submeter::{Bytes, Count, Schema, Tree};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The metrics, which are the same for every group of the tree.
    let mut schema = Schema::builder();
    let answered = schema.counter::<Count>("answered", "Requests answered");
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build()?)?;

    // Look a tenant up once; an update is then about one add: no lock, no syscall, no allocation.
    let web = tree.get_or_create("/acme/web")?;
    web.add(answered, 1);

    // A limit holds for everything below it; dropping a charge returns the amount.
    tree.get_or_create("/acme")?.set_limit(memory, Some(1 << 20));
    let buffer = web.try_charge(memory, 4096)?;
    let refused = web.try_charge(memory, 1 << 20).expect_err("the parent's limit");
    println!("{}", refused.detail()); // for logs; `{refused}` is for the tenant

    // A parent includes its children, even those that are gone.
    drop(buffer);
    web.kill()?;
    assert_eq!(tree.root().sum(answered), 1);
    Ok(())
}
