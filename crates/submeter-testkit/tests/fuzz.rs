//! Long runs of random operations on a tree and on its ledger: a million in release builds.
//!
//! `SUBMETER_FUZZ_OPERATIONS=N` sets how many; `SUBMETER_FUZZ_SEED=S` the first seed.

use std::thread;

use submeter::Tree;
use submeter_testkit::{COUNTERS, Fuzz, Meters, Tally, Visited, Visits};

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give it a whole number"))
}

/// Operations of a test, `share` of them in a hundred.
fn operations(share: u64) -> u64 {
    let default = match () {
        () if cfg!(miri) => 50,
        () if cfg!(debug_assertions) => 100_000,
        () => 1_000_000,
    };
    number("SUBMETER_FUZZ_OPERATIONS", default) * share / 100
}

fn seed() -> u64 {
    number("SUBMETER_FUZZ_SEED", 1)
}

/// Carries `n` operations out, a few hundred on each of many threads in turn: the words of a group are then
/// spread over rows, on every rung, while operations still follow each other.
fn on_threads_in_turn(fuzz: &mut Fuzz, n: u64) {
    let chunk = if cfg!(miri) { 25 } else { 400 };
    let mut left = n;
    while left > 0 {
        let now = left.min(chunk);
        thread::scope(|scope| scope.spawn(|| fuzz.steps(now)).join()).expect("they agree");
        left -= now;
    }
}

fn say(name: &str, groups: usize, tally: Tally) {
    let Tally { operations, created, killed, flushes, compared, .. } = tally;
    println!(
        "{name}: {operations} operations on up to {groups} groups ({created} created, {killed} \
         killed), {flushes} flushes, {compared} values compared: no difference"
    );
}

/// One tree for the whole run: words, marks and numbers of groups are reused many times over.
#[test]
fn random_operations_agree_with_the_ledger() {
    let groups = if cfg!(miri) { 12 } else { 1_000 };
    let mut fuzz = Fuzz::new(Meters::split(), seed(), groups);
    on_threads_in_turn(&mut fuzz, operations(70));
    say("large tree", groups, fuzz.finish());
}

/// Few groups: each operation meets what the last ones left half done.
#[test]
fn random_operations_on_few_groups_agree_with_the_ledger() {
    let groups = if cfg!(miri) { 4 } else { 12 };
    let mut fuzz = Fuzz::new(Meters::new(), seed() + 1, groups);
    on_threads_in_turn(&mut fuzz, operations(30));
    say("small tree", groups, fuzz.finish());
}

/// Every thread has a subtree of its own in one tree, and sees it as if it were alone, exact reads and
/// bounds included. When all are done the root has the sum.
#[test]
fn random_operations_side_by_side_agree_with_their_ledgers_stress() {
    let (meters, threads) = (Meters::split(), 4);
    let tree = Tree::new(meters.schema.clone()).expect("a tree");
    let visits = tree.collector("visits", Visits);
    let groups = if cfg!(miri) { 6 } else { 200 };
    let n = operations(100) / threads;
    let run = |thread: u64| {
        let top = tree.get_or_create(&format!("/tenant {thread}")).expect("room");
        let mut fuzz = Fuzz::below(&meters, &tree, &visits, top, seed() + thread, groups);
        fuzz.steps(n);
        fuzz.finish();
        fuzz
    };
    let fuzzes: Vec<Fuzz> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        running.into_iter().map(|thread| thread.join().expect("they agree")).collect()
    });
    tree.flush();
    for counter in 0..COUNTERS {
        let total: u64 = fuzzes.iter().map(|f| f.ledger().get(0).totals.counters[counter]).sum();
        assert_eq!(tree.root().sum(meters.counters[counter]), total);
    }
    let total: i64 = fuzzes.iter().map(|fuzz| fuzz.ledger().get(0).totals.gauge).sum();
    assert_eq!(tree.root().sum(meters.gauge), total);
    let total: u64 = fuzzes.iter().map(|fuzz| fuzz.ledger().get(0).totals.recorded).sum();
    assert_eq!(tree.root().histogram(meters.histogram).sum(), total);
    let mut visited = Visited::default();
    fuzzes.iter().for_each(|fuzz| visited.merge(&fuzz.ledger().get(0).visited));
    assert_eq!(visits.sum(tree.root(), |seen| *seen.total).expect("no callback panics"), visited);
    let existing: usize = fuzzes.iter().map(|fuzz| fuzz.ledger().existing()).sum();
    assert_eq!(tree.len(), existing + 1, "and the root");
    for (thread, fuzz) in fuzzes.iter().enumerate() {
        say(&format!("thread {thread}"), groups, fuzz.tally());
    }
}
