//! Killed groups leave their totals and no memory. A program of its own, because it measures the
//! memory of the whole process; its tests take turns.

use std::sync::Mutex;

use submeter::{Bytes, Count, Counter, Schema, Tree};

const GROUPS: usize = if cfg!(debug_assertions) { 30_000 } else { 100_000 };
const METRICS: usize = 16;
/// Words of one group in one row: two lines.
const ROW_BYTES: u64 = (GROUPS * METRICS * 8) as u64;

/// Held by the test that measures.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the resident memory of the process in bytes, if the kernel reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Creates groups, updates every metric of each, kills and drops them.
fn live_and_die(tree: &Tree, counters: &[Counter<Count>]) -> Option<u64> {
    let groups: Vec<_> = (0..GROUPS)
        .map(|i| tree.get_or_create(&format!("/p{}/{i}", i % 10)).expect("room"))
        .collect();
    for group in &groups {
        counters.iter().for_each(|counter| group.add(*counter, 1));
    }
    tree.flush();
    let most = resident();
    for child in tree.root().children() {
        drop(child.kill_subtree().expect("lives"));
    }
    drop(groups);
    most
}

/// The words of groups that are gone are given back and reused.
#[test]
fn words_of_gone_groups_are_given_back() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut schema = Schema::builder();
    let counters: Vec<Counter<Count>> =
        (0..METRICS).map(|i| schema.counter(&format!("m{i}"), "")).collect();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let (Some(before), Some(most)) = (resident(), live_and_die(&tree, &counters)) else {
        eprintln!("skipped: the kernel does not say what is resident (mount /proc)");
        return;
    };
    assert!(
        tree.group_count() <= 1 + 256,
        "{}: they are forgotten as they end",
        tree.group_count()
    );
    tree.flush();
    assert_eq!(tree.group_count(), 1);
    let after = resident().expect("said before");
    // At least the pages of the totals, and of the words of the CPUs that this ran on, are given
    // back. The rest went back to the allocator, which keeps most of it for reuse.
    let given = most.saturating_sub(after);
    eprintln!(
        "resident: {before} bytes before, {most} with {GROUPS} groups, {after} once they are gone \
         ({:.1} rows of words given back)",
        given as f64 / ROW_BYTES as f64
    );
    assert!(given >= 2 * ROW_BYTES, "{most} then, {after} now");
    for counter in &counters {
        assert_eq!(tree.root().read(*counter).value, GROUPS as u64, "totals stay");
    }

    for round in 2..4 {
        let again = live_and_die(&tree, &counters).expect("said before");
        tree.flush();
        assert!(again <= most + most / 4, "round {round}: {again} after {most}: not reused");
        assert_eq!(tree.root().read(counters[7]).value, (round * GROUPS) as u64);
    }
}

/// The words of a subtree without handles are given back as it is killed.
///
/// The words lie in the order in which they were made. The parent's table has the groups in any
/// order, in which each page would become free only with the last group that shares it.
#[test]
fn a_subtree_gives_its_memory_back_at_the_kill() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut schema = Schema::builder();
    let counters: Vec<Counter<Count>> =
        (0..METRICS).map(|i| schema.counter(&format!("m{i}"), "")).collect();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let acme = tree.create("/acme").expect("room");
    for n in 0..GROUPS {
        let group = acme.create_child(&n.to_string()).expect("room");
        counters.iter().for_each(|counter| group.add(*counter, 1));
    }
    tree.flush();
    let Some(most) = resident() else {
        eprintln!("skipped: the kernel does not say what is resident (mount /proc)");
        return;
    };
    drop(acme.kill_subtree().expect("alive"));
    let after = resident().expect("said before");
    eprintln!("resident: {most} bytes with {GROUPS} groups, {after} once they are killed");
    // At least two of the three rows in use: totals, last-read values, and one CPU's words.
    assert!(most.saturating_sub(after) >= 2 * ROW_BYTES, "{most} then, {after} now");
    assert_eq!(tree.root().sum(counters[0]), GROUPS as u64);
}

/// Groups that come and go take only the memory of those that live, without a flush.
///
/// The program counts and charges but never reads totals: with many metrics, with one, and with
/// only limits.
#[test]
fn groups_that_come_and_go_take_no_more_memory() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for words in [135, 1, 0] {
        let mut schema = Schema::builder();
        let counters: Vec<Counter<Count>> =
            (0..words).map(|i| schema.counter(&format!("m{i}"), "")).collect();
        let memory = schema.quota::<Bytes>("memory", "");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let pass = |times: usize| {
            for n in 0..times {
                let group = tree.create(&format!("/{n}")).expect("room");
                counters.iter().for_each(|counter| group.add(*counter, 1));
                let charge = group.try_charge(memory, 1).expect("no limit");
                group.kill().expect("no children");
                drop(charge);
            }
        };
        pass(1_000);
        let Some(before) = resident() else {
            eprintln!("skipped: the kernel does not say what is resident (mount /proc)");
            return;
        };
        let groups = if words == 135 { GROUPS / 5 } else { GROUPS };
        pass(groups);
        let after = resident().expect("said before");
        // A live group takes more than a kilobyte with many metrics, over 90 bytes with none.
        let most = before + before / 20 + (256 << 10);
        eprintln!("{words} metrics: {before} bytes resident, then {after}");
        assert!(after <= most, "{words} metrics: {before}, {after} after {groups} groups");
        let total = |counter: &Counter<Count>| tree.root().sum(*counter);
        assert!(counters.iter().all(|counter| total(counter) == (groups + 1_000) as u64));
    }
}
