//! Exports to receivers of every kind.

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

use submeter::{Schema, SchemaBuilder, Tree};
use submeter_otlp::{Builder, Exporter};

use receiver::Receiver;

fn tree(declare: impl FnOnce(&mut SchemaBuilder)) -> Tree {
    let mut schema = Schema::builder();
    declare(&mut schema);
    Tree::new(schema.build().expect("valid")).expect("address space")
}

/// An exporter that sends only when it is asked to.
fn to(receiver: &Receiver, tree: &Tree) -> Builder {
    let hour = Duration::from_secs(3600);
    Exporter::builder(tree).endpoint(&receiver.url()).interval(hour).timeout(hour)
}
