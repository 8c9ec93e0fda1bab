//! The recorder, as crates that count by `metrics` see it.

mod exported;
mod recorded;

use submeter::{Group, Schema, Tree};
use submeter_metrics::{Named, Recorder, Slot, Slots};

fn recorder(slots: Slots) -> (Tree, Recorder) {
    let mut schema = Schema::builder();
    let slots = slots.declare(&mut schema);
    let tree = Tree::new(schema.build().expect("a valid schema")).expect("room for a tree");
    let recorder = Recorder::new(tree.root(), slots);
    (tree, recorder)
}

fn named(recorder: &Recorder, name: &str) -> Named {
    recorder.named().into_iter().find(|metric| metric.name == name).expect("has a slot")
}

/// Returns the counter's total in a group.
fn counted(recorder: &Recorder, group: &Group, name: &str) -> u64 {
    match named(recorder, name).slot {
        Slot::Counter(counter) => group.sum(counter),
        other => panic!("{name} is {other:?}"),
    }
}

/// Returns the gauge's total in a group.
fn level(recorder: &Recorder, group: &Group, name: &str) -> f64 {
    match named(recorder, name).slot {
        Slot::Gauge(gauge) => group.sum(gauge) as f64 / f64::from(submeter_metrics::GAUGE_PER_UNIT),
        other => panic!("{name} is {other:?}"),
    }
}

/// Returns a counter's total by its name in the schema.
fn declared(tree: &Tree, path: &str, name: &str) -> u64 {
    let snapshot = tree.snapshot();
    let metric = snapshot.schema().metric(name).expect("declared");
    match snapshot.get(path).expect("exists").value(metric) {
        submeter::Value::Counter(n) => n,
        other => panic!("{name} is {other}"),
    }
}

fn text(tree: &Tree, recorder: &Recorder) -> String {
    let mut text = String::new();
    recorder.openmetrics(&tree.snapshot(), "app", &mut text).expect("a string takes all");
    text
}
