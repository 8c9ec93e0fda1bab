//! A tree's metrics, sent to the receiver that `OTEL_EXPORTER_OTLP_ENDPOINT` names.

use submeter::{Count, Schema, Tree};
use submeter_otlp::Exporter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests answered");
    let tree = Tree::new(schema.build()?)?;

    // To http://localhost:4318 each minute, unless the environment says otherwise.
    let exporter = Exporter::builder(&tree).service("shop").environment()?.start()?;
    tree.get_or_create("/acme")?.add(requests, 3);

    // Sends what was counted since the last interval.
    exporter.shutdown()?;
    Ok(())
}
