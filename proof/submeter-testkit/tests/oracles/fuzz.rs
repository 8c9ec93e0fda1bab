//! Long streams of random operations on a tree and on its oracle: a million in release builds.
//!
//! `SUBMETER_FUZZ_OPERATIONS=N` sets their number; `SUBMETER_FUZZ_SEED=S` the first seed.

use std::thread;

use submeter::Tree;
use submeter_testkit::{Differential, Tally, TestSchema, Totals, Visits};

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give it a whole number"))
}

/// Returns the operations of a test, `share` per cent of all.
fn operations(share: u64) -> u64 {
    let default = match () {
        () if cfg!(miri) => 50,
        () if cfg!(debug_assertions) => 20_000,
        () => 1_000_000,
    };
    number("SUBMETER_FUZZ_OPERATIONS", default) * share / 100
}

fn seed() -> u64 {
    number("SUBMETER_FUZZ_SEED", 1)
}

/// Applies `n` operations, a few hundred on each of many threads in turn: on every backend the
/// words of a group are then spread over rows, although operations are still sequential.
fn on_threads_in_turn(stream: &mut Differential, n: u64) {
    let chunk = if cfg!(miri) { 25 } else { 400 };
    let mut left = n;
    while left > 0 {
        let now = left.min(chunk);
        thread::scope(|scope| scope.spawn(|| stream.steps(now)).join()).expect("they agree");
        left -= now;
    }
}

fn say(name: &str, groups: usize, tally: Tally) {
    let Tally { operations, created, killed, flushes, compared, late, .. } = tally;
    println!(
        "{name}: {operations} operations on up to {groups} groups ({created} created, {killed} \
         killed), {flushes} flushes, {compared} values compared: no difference; {late} refusals not \
         compared, as a barrier was given up"
    );
}

/// One tree for the whole run: words, marks and group numbers are reused many times over.
#[test]
fn random_operations_agree_with_the_oracle() {
    let groups = if cfg!(miri) { 12 } else { 1_000 };
    let mut stream = Differential::stream(TestSchema::split(), seed(), groups);
    on_threads_in_turn(&mut stream, operations(70));
    say("large tree", groups, stream.finish());
}

/// Random operations on few groups agree with the oracle.
///
/// With few groups, each operation meets the unfinished work of the last ones.
#[test]
fn operations_on_few_groups_agree_with_oracle() {
    let groups = if cfg!(miri) { 4 } else { 12 };
    let mut stream = Differential::stream(TestSchema::new(), seed() + 1, groups);
    on_threads_in_turn(&mut stream, operations(30));
    say("small tree", groups, stream.finish());
}

/// Random operations in parallel agree with their oracles.
///
/// Every thread has its own subtree of one tree, and sees it as if it were alone, including exact
/// reads and bounds. In the end the root has the sum.
#[test]
fn random_operations_agree_with_oracles_stress() {
    let (schema, threads) = (TestSchema::split(), 4);
    let tree = Tree::new(schema.schema.clone()).expect("a tree");
    let visits = tree.aggregator("visits", Visits);
    let groups = if cfg!(miri) { 6 } else { 200 };
    let n = operations(100) / threads;
    let run = |thread: u64| {
        let top = tree.get_or_create(&format!("/tenant {thread}")).expect("room");
        let mut stream = Differential::below(&schema, &tree, &visits, top, seed() + thread, groups);
        stream.steps(n);
        stream.finish();
        stream
    };
    let streams: Vec<Differential> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        running.into_iter().map(|thread| thread.join().expect("they agree")).collect()
    });
    let mut total = Totals::default();
    streams.iter().for_each(|stream| total.merge(&stream.oracle().get(0).totals));
    tree.flush();
    assert_eq!(schema.cached(tree.root()), total.sums);
    let root = tree.root();
    assert_eq!(schema.counters.map(|key| root.sum(key)), total.sums.counters);
    assert_eq!(root.sum(schema.gauge), total.sums.gauge);
    let visited = visits.sum(root, |seen| *seen.total).expect("no callback panics");
    assert_eq!(visited, total.visited);
    let existing: usize = streams.iter().map(|stream| stream.oracle().existing()).sum();
    assert_eq!(tree.group_count(), existing + 1, "and the root");
    for (thread, stream) in streams.iter().enumerate() {
        say(&format!("thread {thread}"), groups, stream.tally());
    }
}
