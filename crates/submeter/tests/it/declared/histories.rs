//! What is counted while sets are added and groups come and go.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use submeter::export::Export;
use submeter::{Bytes, Count, Counter, Gauge, Group, Snapshot, Tree, Value};

use super::{Db, DbLater, S3, World, world};

/// A model of the tree that is obviously correct.
#[derive(Default)]
struct Oracle {
    groups: Vec<OracleGroup>,
}

struct OracleGroup {
    handle: Group,
    parent: Option<usize>,
    alive: bool,
    counted: HashMap<&'static str, i64>,
}

impl Oracle {
    fn total(&self, at: usize, metric: &str) -> i64 {
        let below = (0..self.groups.len()).filter(|&child| self.groups[child].parent == Some(at));
        let own = self.groups[at].counted.get(metric).copied().unwrap_or(0);
        own + below.map(|child| self.total(child, metric)).sum::<i64>()
    }

    fn has_live_child(&self, at: usize) -> bool {
        self.groups.iter().any(|group| group.parent == Some(at) && group.alive)
    }
}

#[test]
fn random_histories_agree_with_an_oracle() {
    for seed in 0..40 {
        history(seed);
    }
}

/// Declares, creates, updates, kills and reads in random order.
fn history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut history = History::new();
    for _ in 0..300 {
        history.step(&mut random);
        history.compare_one(&mut random, seed);
    }
    history.compare_all(seed);
}

/// A tree, the metrics declared so far, and the values they must have.
struct History {
    tree: Tree,
    metrics: Vec<(&'static str, Key)>,
    oracle: Oracle,
}

#[derive(Clone, Copy)]
enum Key {
    Count(Counter<Count>),
    Bytes(Counter<Bytes>),
    Gauge(Gauge<Count>),
}

impl History {
    fn new() -> History {
        let World { tree, requests, sent } = world();
        let metrics = vec![("requests", Key::Count(requests)), ("sent", Key::Bytes(sent))];
        let (handle, counted) = (tree.root().clone(), HashMap::new());
        let root = OracleGroup { handle, parent: None, alive: true, counted };
        History { tree, metrics, oracle: Oracle { groups: vec![root] } }
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let History { tree, metrics, oracle } = self;
        let at = random.usize(..oracle.groups.len());
        match random.u32(..100) {
            0..2 => {
                let Db { queries, rows, .. } = tree.declare().expect("room");
                metrics.push(("db_queries", Key::Count(queries)));
                metrics.push(("db_rows", Key::Gauge(rows)));
            }
            2..4 => {
                let S3 { read, .. } = tree.declare().expect("room");
                metrics.push(("s3_read", Key::Bytes(read)));
            }
            4..5 => {
                let DbLater { failed, .. } = tree.declare().expect("room");
                metrics.push(("db_failed", Key::Count(failed)));
            }
            5..25 if oracle.groups[at].alive => {
                let name = format!("g{}", oracle.groups.len());
                let handle = oracle.groups[at].handle.create_child(&name).expect("room");
                let (parent, counted) = (Some(at), HashMap::new());
                oracle.groups.push(OracleGroup { handle, parent, alive: true, counted });
            }
            25..35 if at > 0 && oracle.groups[at].alive && !oracle.has_live_child(at) => {
                oracle.groups[at].handle.kill().expect("alive, without children");
                oracle.groups[at].alive = false;
            }
            35..40 => {
                tree.flush();
            }
            _ => {
                let (name, key) = metrics[random.usize(..metrics.len())];
                oracle.groups[at].count(name, key, random.u32(1..2000));
            }
        }
    }

    fn compare_one(&self, random: &mut fastrand::Rng, seed: u64) {
        let (name, key) = self.metrics[random.usize(..self.metrics.len())];
        let at = random.usize(..self.oracle.groups.len());
        let expected = self.oracle.total(at, name);
        let handle = &self.oracle.groups[at].handle;
        let sum = match key {
            Key::Count(counter) => {
                let reading = handle.read(counter);
                let off = expected.cast_unsigned().abs_diff(reading.value);
                assert!(off <= reading.max_error, "seed {seed}: {reading:?} is {off} off");
                handle.sum(counter).cast_signed()
            }
            Key::Bytes(counter) => handle.sum(counter).cast_signed(),
            Key::Gauge(gauge) => handle.sum(gauge),
        };
        assert_eq!(sum, expected, "seed {seed}: {name}");
    }

    fn compare_all(&self, seed: u64) {
        let (snapshot, groups) = (self.tree.snapshot(), self.oracle.groups.iter().enumerate());
        for (at, group) in groups.filter(|(_, group)| group.alive) {
            let values = snapshot.get(group.handle.path()).expect("alive");
            for metric in snapshot.schema().metrics() {
                let n = match values.value(metric) {
                    Value::Counter(n) => n.cast_signed(),
                    Value::Gauge(n) => n,
                    _ => 0,
                };
                let name = metric.name();
                assert_eq!(n, self.oracle.total(at, name), "seed {seed}: {name}");
            }
        }
    }
}

impl OracleGroup {
    fn count(&mut self, name: &'static str, key: Key, n: u32) {
        match key {
            Key::Count(counter) => self.handle.add(counter, n.into()),
            Key::Bytes(counter) => self.handle.add(counter, n.into()),
            Key::Gauge(gauge) => self.handle.adjust(gauge, -i64::from(n)),
        }
        let sign = if matches!(key, Key::Gauge(_)) { -1 } else { 1 };
        *self.counted.entry(name).or_default() += sign * i64::from(n);
    }
}

#[test]
fn first_updates_that_race_are_all_there() {
    let World { tree, .. } = world();
    let db: Db = tree.declare().expect("new names");
    let start = Barrier::new(4);
    for round in 0..300 {
        let (above, path) = (format!("/{}", round / 2), format!("/{}/{round}", round / 2));
        let leaf = tree.get_or_create(&path).expect("room");
        let above = tree.get(&above).expect("made with its child");
        let race = |n: usize| {
            start.wait();
            // Half of them from the level above.
            let group = if n.is_multiple_of(2) { &leaf } else { &above };
            group.inc(db.queries);
            group.adjust(db.rows, -1);
        };
        let before = above.sum(db.queries);
        thread::scope(|scope| (0..4).for_each(|n| drop(scope.spawn(move || race(n)))));
        assert_eq!((leaf.sum(db.queries), leaf.sum(db.rows)), (2, -2));
        assert_eq!(above.sum(db.queries), before + 4);
    }
}

/// No count is lost while sets are declared and groups come and go.
///
/// Groups come, count and go while sets are declared and everything is read: nothing is lost, and
/// each snapshot agrees with itself.
#[test]
fn declaring_while_groups_change_loses_nothing() {
    for _ in 0..10 {
        storm();
    }
}

/// Fails if the children of a group have more of a counter than the group has.
fn check_sums(snapshot: &Snapshot) {
    for metric in snapshot.schema().metrics() {
        let mut rest = vec![0_i128; snapshot.groups().len()];
        for (at, group) in snapshot.groups().iter().enumerate() {
            let Value::Counter(n) = group.value(metric) else { continue };
            rest[at] += i128::from(n);
            if let Some(parent) = group.parent() {
                rest[parent] -= i128::from(n);
            }
        }
        assert!(rest.iter().all(|rest| *rest >= 0), "more below than in all");
    }
}

fn storm() {
    let World { tree, requests, .. } = world();
    let (ended, counted) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
    // Relaxed: sums that are read after the threads were joined.
    let add = |at: usize| counted[at].fetch_add(1, Ordering::Relaxed);
    let worker = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sets = None;
        for round in 0..400 {
            if round == random.usize(..40) {
                let db: Db = tree.declare().expect("room");
                let s3: S3 = tree.declare().expect("room");
                sets = Some((db, s3));
            }
            let path = format!("/{}/{}", random.u32(..3), random.u32(..8));
            let Ok(group) = tree.get_or_create(&path) else { continue };
            for _ in 0..random.u32(..20) {
                group.inc(requests);
                add(0);
                if let Some((db, s3)) = &sets {
                    group.inc(db.queries);
                    group.add(s3.read, 1);
                    add(1);
                    add(2);
                }
            }
            if random.u32(..4) == 0 {
                let _ = group.kill();
            }
        }
        sets.unwrap_or_else(|| (tree.declare().expect("room"), tree.declare().expect("room")))
    };
    let watcher = || {
        let (mut known, export) = (0, Export::new("app"));
        // Relaxed: it only ends the loop.
        while !ended.load(Ordering::Relaxed) {
            let snapshot = tree.snapshot();
            let metrics = snapshot.schema().metrics();
            assert!(metrics.len() >= known, "a schema only grows");
            known = metrics.len();
            check_sums(&snapshot);
            drop(tree.totals());
            let mut text = String::new();
            export.write(&tree, &mut text).expect("a string");
            let families = text.lines().filter(|line| line.starts_with("# TYPE app_db_")).count();
            assert!(families == 0 || families == 3, "all of a set, or nothing of it: {text}");
        }
    };
    let keys = thread::scope(|scope| {
        let watcher = scope.spawn(watcher);
        let threads: Vec<_> = (0..3).map(|n| scope.spawn(move || worker(n))).collect();
        let keys: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        ended.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic");
        keys
    });
    let (db, s3) = keys[0];
    assert!(keys.iter().all(|of| *of == keys[0]));
    let sums = [tree.root().sum(requests), tree.root().sum(db.queries), tree.root().sum(s3.read)];
    assert_eq!(sums, counted.map(AtomicU64::into_inner));
}
