//! A tenant's query, which spills at the tenant's limit.

use datafusion::prelude::{SessionConfig, SessionContext};
use submeter::{Bytes, Schema, Tree};
use submeter_datafusion::TenantPools;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory reserved by operators");
    let tree = Tree::new(schema.build()?)?;
    tree.root().set_limit(memory, Some(1 << 30)); // of all tenants together
    let acme = tree.create("/acme")?;
    acme.set_limit(memory, Some(8 << 20));
    let pools = TenantPools::new(&acme, memory);

    // A context for each query: the group below /acme lives as long as its memory is in use.
    let config = SessionConfig::new().with_sort_spill_reservation_bytes(1 << 20);
    let context = SessionContext::new_with_config_rt(config, pools.query()?);
    let sql = "SELECT * FROM generate_series(1, 1000000) AS t(n) ORDER BY (n * 7919) % 1000003";
    let rows: usize = context.sql(sql).await?.collect().await?.iter().map(|b| b.num_rows()).sum();
    drop(context);

    let usage = acme.usage(memory); // of all its queries, those that ended too
    assert_eq!((rows, usage.current), (1_000_000, 0));
    println!("sorted {rows} rows, at most {} of {} bytes at once", usage.peak, 8 << 20);
    Ok(())
}
