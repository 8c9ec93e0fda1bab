//! The tenant of a span is charged.

use submeter::{Count, Schema, Tree, switch};
use submeter_tracing::TenantLayer;
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let queries = schema.counter::<Count>("queries", "Queries run");
    let tree = Tree::new(schema.build()?)?;
    let layer = TenantLayer::new(tree.root());
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer.clone()))?;

    info_span!("request", tenant = "acme").in_scope(|| {
        // Deep inside, in a span of its own.
        info_span!("query").in_scope(|| switch::add(tree.root(), queries, 1));
    });
    info_span!("request", tenant = "../etc/passwd").in_scope(|| {
        switch::add(tree.root(), queries, 1);
    });
    let sum = |path| tree.get(path).map(|group| group.sum(queries));
    assert_eq!((sum("/acme"), sum("/:other"), layer.refused()), (Some(1), Some(1), 1));
    Ok(())
}
