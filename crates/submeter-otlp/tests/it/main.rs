//! Exports to receivers of every kind.

mod addressed;
mod collector;
mod declared;
mod grpc;
mod receiver;
mod refused;
mod sent;
mod sums;
mod tls;
mod told;

use std::time::Duration;

use submeter::{Buckets, Count, Counter, Gauge, Histogram, Schema, SchemaBuilder, Tree};
use submeter_otlp::{Builder, Exporter};

use receiver::Receiver;

fn tree(declare: impl FnOnce(&mut SchemaBuilder)) -> Tree {
    let mut schema = Schema::builder();
    declare(&mut schema);
    Tree::new(schema.build().expect("valid")).expect("address space")
}

/// A tree with the counter `n` and the gauge `open`.
fn with_gauge() -> (Tree, Counter<Count>, Gauge<Count>) {
    let mut keys = None;
    let tree = tree(|schema| keys = Some((schema.counter("n", ""), schema.gauge("open", ""))));
    let (n, open) = keys.expect("declared");
    (tree, n, open)
}

/// A tree with the counter `n` and the histogram `size`, which ends at this power of two.
fn with_histogram(end: u8) -> (Tree, Counter<Count>, Histogram<Count>) {
    let mut keys = None;
    let tree = tree(|schema| {
        let size = schema.histogram("size", "", Buckets::powers(2, end));
        keys = Some((schema.counter("n", ""), size));
    });
    let (n, size) = keys.expect("declared");
    (tree, n, size)
}

/// An exporter that sends only on request.
fn to(receiver: &Receiver, tree: &Tree) -> Builder {
    let hour = Duration::from_secs(3600);
    Exporter::builder(tree).endpoint(&receiver.url()).interval(hour).timeout(hour)
}
