//! A tree's metrics in a registry that the program already has.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use submeter::{Count, Schema, Tree};
use submeter_prometheus_client::TreeCollector;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let tree = Tree::new(schema.build()?)?;
    tree.get_or_create("/acme")?.add(requests, 3);

    let mut registry = Registry::with_prefix("app");
    registry.register_collector(Box::new(TreeCollector::new(&tree)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    assert!(text.contains("app_requests_subtree_total{group=\"/acme\"} 3\n"));
    Ok(())
}
