//! What an update by the recorder costs, beside [`Group::add`] in the same group:
//! `cargo run --release -p submeter-metrics --example recorder_cost`.

use std::hint::black_box;
use std::time::Instant;

use metrics::counter;
use submeter::{Count, Group, Schema, Tree, switch};
use submeter_metrics::{Recorder, Slots};

const UPDATES: u64 = 10_000_000;
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let own = schema.counter::<Count>("own", "The program's own");
    let slots = Slots::new().declare(&mut schema);
    let tree = Tree::new(schema.build()?)?;
    let recorder = Recorder::new(tree.root(), slots);
    metrics::set_global_recorder(recorder)?;
    let group = tree.create("/acme")?;
    let kept = counter!("kept");
    let add = median(|| black_box(&group).add(own, 1));
    println!("Group::add                    {add:6.2} ns");
    let outside: &Group = tree.root();
    let entered = group.enter();
    let with_ratio = |name: &str, ns: f64| println!("{name:29} {ns:6.2} ns = {:.2} adds", ns / add);
    with_ratio("switch::add", median(|| switch::add(black_box(outside), own, 1)));
    let current = || switch::current().expect("entered above").add(own, 1);
    with_ratio("switch::current, Group::add", median(current));
    with_ratio("a kept handle's increment", median(|| black_box(&kept).increment(1)));
    with_ratio("counter!(…).increment", median(|| counter!("kept").increment(1)));
    drop(entered);
    with_ratio("a kept handle's, in no group", median(|| black_box(&kept).increment(1)));
    Ok(())
}

/// Returns the median time of one update over all rounds.
fn median(update: impl Fn()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..UPDATES).for_each(|_| update());
            start.elapsed().as_nanos() as f64 / UPDATES as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
