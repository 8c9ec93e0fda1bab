//! Another crate's metrics, per tenant.

use submeter::{Schema, Tree};
use submeter_metrics::{Recorder, Slots};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let slots = Slots::new().counters(100).declare(&mut schema);
    let tree = Tree::new(schema.build()?)?;
    let recorder = Recorder::new(tree.root(), slots);
    metrics::set_global_recorder(recorder.clone())?;

    // Somewhere in a crate that knows nothing of tenants.
    let query = || metrics::counter!("queries", "table" => "users").increment(1);
    tree.get_or_create("/acme")?.run(query);
    query();

    let mut text = String::new();
    recorder.openmetrics(&tree.snapshot(), "app", &mut text)?;
    assert!(text.contains("app_queries_total{group=\"/acme\",table=\"users\"} 1\n"));
    assert!(text.contains("app_queries_total{group=\"/\",table=\"users\"} 2\n"));
    Ok(())
}
