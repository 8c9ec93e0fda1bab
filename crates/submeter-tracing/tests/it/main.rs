//! Spans of tenants, and which group is current.

mod charged;
#[cfg(feature = "fmt")]
mod prefixed;
mod refused;

use submeter::{Schema, Tree, switch};
use submeter_tracing::TenantLayer;
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt;

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("valid")).expect("address space")
}

fn dispatch(layer: &TenantLayer) -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(layer.clone()))
}

fn current() -> Option<String> {
    switch::current().map(|group| group.path().to_owned())
}

/// Returns the path of the group that is current in a span.
fn inside(span: &tracing::Span) -> Option<String> {
    span.in_scope(current)
}
