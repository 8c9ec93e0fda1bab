//! Sets of metrics that are added to an existing tree.

mod histories;
mod shown;

use std::sync::Barrier;
use std::thread;

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Metrics, Nanoseconds, Quota, RateLimit,
    Schema, SchemaBuilder, Snapshot, Tolerance, Tree, Value,
};

/// What a library counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Metrics)]
#[metrics(prefix = "db_")]
struct Db {
    /// Queries sent
    queries: Counter<Count>,
    /// Rows in memory
    rows: Gauge<Count>,
    /// Time to answer
    #[metric(buckets = Buckets::LATENCY_NS)]
    latency: Histogram<Nanoseconds>,
}

/// What a later version of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Metrics)]
#[metrics(prefix = "db_")]
struct DbLater {
    /// Queries that failed
    failed: Counter<Count>,
    /// Queries that were sent
    queries: Counter<Count>,
}

/// What another library counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Metrics)]
#[metrics(prefix = "s3_", section = "network")]
struct S3 {
    /// Bytes read
    read: Counter<Bytes>,
    /// Bytes written
    written: Counter<Bytes>,
}

struct World {
    tree: Tree,
    requests: Counter<Count>,
    sent: Counter<Bytes>,
}

fn world() -> World {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let sent = schema.section("network", |network| network.counter("sent", "Sent"));
    schema.quota::<Bytes>("memory", "Memory");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    World { tree, requests, sent }
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.metrics().iter().map(submeter::Metric::name).collect()
}

fn counter(snapshot: &Snapshot, path: &str, counter: Counter<Count>) -> u64 {
    snapshot.get(path).expect("it lives").counter(counter)
}

#[test]
fn all_groups_and_reads_have_what_is_declared() {
    let World { tree, requests, .. } = world();
    let before = tree.get_or_create("/acme/before").expect("room");
    let killed = tree.create("/acme/killed").expect("room");
    killed.kill().expect("alive");
    before.inc(requests);

    let db: Db = before.declare().expect("new names");
    let after = tree.create("/acme/after").expect("room");
    for group in [&before, &killed, &after] {
        group.add(db.queries, 2);
        group.adjust(db.rows, 5);
        group.record(db.latency, 5_000);
    }
    before.inc(db.queries);
    before.set(db.rows, 1);

    assert_eq!(tree.root().read(db.queries).value, 0, "nothing was flushed");
    assert!(tree.root().read(db.queries).max_error >= 7);
    after.flush();
    assert_eq!(after.read(db.queries).value, 2);
    assert_eq!((before.sum(db.queries), before.sum(db.rows)), (3, 1));
    assert_eq!((tree.root().sum(db.queries), tree.root().sum(db.rows)), (7, 11));
    assert_eq!(tree.root().sum_histogram(db.latency).count(), 3);
    assert_eq!(tree.root().read_within(db.queries, Tolerance::EXACT).value, 7);
    assert_eq!(tree.root().sum(requests), 1);

    let idle = tree.create("/idle").expect("room");
    let reading = idle.read(db.queries);
    assert_eq!((reading.value, reading.max_error), (0, 0));
    assert_eq!((idle.sum(db.rows), idle.read_histogram(db.latency).value.count()), (0, 0));

    let snapshot = tree.snapshot_with_own();
    assert_eq!(names(snapshot.schema())[3..], ["db_queries", "db_rows", "db_latency"]);
    assert_eq!(counter(&snapshot, "/acme", db.queries), 7);
    assert_eq!(counter(&snapshot, "/idle", db.queries), 0);
    let metric = snapshot.schema().metric("db_queries").expect("declared");
    let own = |path: &str| snapshot.get(path).expect("it lives").own(metric);
    assert_eq!(own("/acme/before"), Some(Value::Counter(3)));
    assert_eq!([own("/acme"), own("/idle")], [Some(Value::Counter(0)), Some(Value::Counter(0))]);
    tree.flush_section(metric.section());
}

#[test]
fn a_snapshot_older_than_a_set_lacks_it() {
    let World { tree, requests, .. } = world();
    tree.root().inc(requests);
    let snapshot = tree.snapshot_with_own();
    let db: Db = tree.declare().expect("new names");
    tree.root().inc(db.queries);
    let root = &snapshot.groups()[0];
    assert_eq!((root.counter(db.queries), root.gauge(db.rows)), (0, 0));
    assert_eq!(root.histogram(db.latency).count(), 0);
    assert_eq!(snapshot.schema().metrics().len(), 3);
    let metric = tree.schema().metric("db_queries").expect("declared");
    assert_eq!(root.value(metric), Value::Counter(0));
    assert_eq!(root.own(metric), Some(Value::Counter(0)));
}

#[test]
#[should_panic(expected = "the metric belongs to the schema of another tree")]
fn keys_of_another_tree_are_refused_by_updates() {
    let (one, other) = (world(), world());
    let db: Db = one.tree.declare().expect("new names");
    let _: Db = other.tree.declare().expect("new names");
    other.tree.root().inc(db.queries);
}

#[test]
#[should_panic(expected = "the metric belongs to the schema of another tree")]
fn keys_of_another_tree_are_refused_by_reads() {
    let (one, other) = (world(), world());
    let db: Db = one.tree.declare().expect("new names");
    let _ = other.tree.root().read(db.queries);
}

#[test]
fn trees_of_one_schema_do_not_share_sets() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "");
    let schema = schema.build().expect("valid");
    let [one, other] = [(); 2].map(|()| Tree::new(schema.clone()).expect("address space"));
    let db: Db = one.declare().expect("new names");
    one.root().inc(requests);
    other.root().inc(requests);
    one.root().inc(db.queries);
    assert_eq!((one.root().sum(requests), other.root().sum(requests)), (1, 1));
    assert_eq!((one.schema().metrics().len(), other.schema().metrics().len()), (4, 1));
    assert_eq!(schema.metrics().len(), 1);
}

#[test]
fn what_is_declared_again_is_the_same() {
    let World { tree, .. } = world();
    let db: Db = tree.declare().expect("new names");
    assert_eq!(tree.declare::<Db>().expect("known"), db);
    let words = tree.schema().words();

    // A later version finds the metrics that it shares, and adds the others.
    let later: DbLater = tree.declare().expect("one new name");
    assert_eq!(later.queries, db.queries);
    assert_eq!(tree.schema().words(), words + 1);
    assert_eq!(tree.declare::<DbLater>().expect("known"), later);
    assert_eq!(tree.declare::<Db>().expect("known"), db);
    let known = ["requests", "sent", "memory", "db_queries", "db_rows", "db_latency", "db_failed"];
    assert_eq!(names(tree.schema()), known);
    assert_eq!(tree.schema().metric("db_queries").expect("known").help(), "Queries sent");

    tree.root().inc(later.failed);
    tree.root().inc(later.queries);
    tree.root().inc(db.queries);
    assert_eq!((tree.root().sum(later.failed), tree.root().sum(db.queries)), (1, 2));
}

#[test]
fn what_the_program_declared_is_found() {
    let mut schema = Schema::builder();
    let db: Db = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    assert_eq!(tree.declare::<Db>().expect("known"), db);
    assert_eq!(tree.schema().sections().count(), 1);
}

/// One of each kind that only a schema can declare.
#[derive(Debug, PartialEq, Eq, Metrics)]
struct Early {
    /// Memory
    memory: Quota<Bytes>,
    /// Sent
    sent: RateLimit<Bytes>,
    /// CPU time
    #[metric(cpu_time)]
    cpu: Counter<Nanoseconds>,
}

#[test]
fn what_a_tree_began_with_is_found_or_refused() {
    let mut schema = Schema::builder();
    let early: Early = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    assert_eq!(tree.declare::<Early>().expect("known"), early);

    let refused = |declare: fn(&mut SchemaBuilder)| {
        let tree = world().tree;
        let error = declare_with(&tree, declare).expect_err("refused");
        assert!(error.is_schema() && std::error::Error::source(&error).is_some());
        assert_eq!(tree.schema().metrics().len(), 3, "nothing was added");
        error.to_string()
    };
    for (declare, what) in [
        (
            (|s| {
                s.quota::<Count>("slots", "");
            }) as fn(&mut SchemaBuilder),
            "\"slots\" is a quota",
        ),
        (
            |s| {
                s.rate_limit::<Count>("calls", "");
            },
            "\"calls\" is a rate limit",
        ),
        (
            |s| {
                s.cpu_time("cpu", "");
            },
            "\"cpu\" is a counter of CPU time",
        ),
    ] {
        let error = refused(declare);
        assert!(error.contains(what) && error.contains("made with"), "{error}");
    }
}

thread_local! {
    static DECLARE: std::cell::Cell<Option<fn(&mut SchemaBuilder)>> = const { std::cell::Cell::new(None) };
}

/// A set that a closure declares.
struct Any;

impl Metrics for Any {
    fn declare(schema: &mut SchemaBuilder) -> Any {
        DECLARE.get().expect("set by the test")(schema);
        Any
    }
}

fn declare_with(tree: &Tree, declare: fn(&mut SchemaBuilder)) -> Result<(), submeter::Error> {
    DECLARE.set(Some(declare));
    tree.declare::<Any>().map(drop)
}

/// A name that the tree has for another metric is an error that names both.
#[test]
fn a_conflict_is_an_error_that_names_both() {
    let World { tree, .. } = world();
    tree.declare::<Db>().expect("new names");
    let before = names(tree.schema()).len();
    for (declare, both) in [
        (
            (|s| {
                s.gauge::<Bytes>("requests", "");
            }) as fn(&mut SchemaBuilder),
            ["already has \"requests\", a counter,", "a gauge of bytes"],
        ),
        (
            |s| {
                s.counter::<Count>("sent", "");
            },
            ["a counter of bytes,", "as a counter:"],
        ),
        (
            |s| {
                s.counter::<Bytes>("memory", "");
            },
            ["a quota of bytes,", "a counter of bytes"],
        ),
        (
            |s| {
                s.histogram::<Nanoseconds>("db_latency", "", Buckets::powers(10, 20));
            },
            ["with buckets from 256 to 68719476736,", "with buckets from 1024 to 1048576"],
        ),
    ] {
        let error = declare_with(&tree, declare).expect_err("a clash").to_string();
        assert!(both.iter().all(|part| error.contains(part)), "{error}");
    }
    for (declare, problem) in [
        (
            (|s| {
                s.counter::<Count>("No", "");
            }) as fn(&mut SchemaBuilder),
            "not of the form",
        ),
        (
            |s| {
                s.counter::<Count>("twice", "");
                s.counter::<Count>("twice", "");
            },
            "two metrics are named \"twice\"",
        ),
        (
            |s| {
                s.counter::<Count>("requests", "");
                s.counter::<Count>("requests", "");
            },
            "two metrics are named \"requests\"",
        ),
        (
            |s| {
                (0..9).for_each(|n| {
                    s.histogram::<Count>(&format!("h{n}"), "", Buckets::powers(2, 60));
                });
            },
            "words, more than the maximum of 512",
        ),
    ] {
        let error = declare_with(&tree, declare).expect_err("not valid").to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(names(tree.schema()).len(), before, "nothing was added");
    tree.declare::<DbLater>().expect("the tree is as it was");
}

/// Added sections get names of their own, and one section too many is an error.
#[test]
fn one_section_too_many_is_an_error() {
    let World { tree, sent, .. } = world();
    let s3: S3 = tree.declare().expect("new names");
    tree.declare::<Db>().expect("new names");
    tree.declare::<DbLater>().expect("a new name");
    let sections: Vec<&str> = tree.schema().sections().map(|(_, name)| name).collect();
    assert_eq!(sections, ["main", "network", "network_2", "added", "added_2"]);
    tree.root().add(s3.read, 3);
    tree.root().add(sent, 4);
    assert_eq!((tree.root().sum(s3.read), tree.root().sum(sent)), (3, 4));

    // An error in between uses up no section number.
    declare_with(&tree, |s| {
        s.gauge::<Count>("sent", "");
    })
    .expect_err("a clash");
    thread_local!(static N: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let declare = || {
        N.set(N.get() + 1);
        declare_with(&tree, |s| {
            s.section("empty", |_| ());
            s.counter::<Count>(&format!("more_{}", N.get()), "");
        })
    };
    for n in 5..submeter::SECTIONS_MAX {
        assert_eq!(tree.schema().sections().count(), n);
        declare().expect("room for a section");
    }
    let error = declare().expect_err("one too many").to_string();
    assert!(error.contains("17 sections are too many: declare at most 16"), "{error}");
    let ids: std::collections::HashSet<_> = tree.schema().sections().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), submeter::SECTIONS_MAX);
    let schema = tree.schema().clone();
    for metric in schema.metrics() {
        tree.flush_section(metric.section());
    }
}

#[test]
fn threads_that_race_get_the_same_keys() {
    for _ in 0..50 {
        let World { tree, .. } = world();
        let start = Barrier::new(4);
        let race = |which: usize| {
            start.wait();
            if which.is_multiple_of(2) {
                tree.declare::<S3>().expect("room");
            }
            let db = tree.declare::<Db>().expect("room");
            let later = tree.declare::<DbLater>().expect("room");
            tree.root().inc(db.queries);
            tree.root().inc(later.failed);
            (db, later)
        };
        let keys = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || race(n))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(keys.iter().all(|of| *of == keys[0]), "{keys:?}");
        let mut all = names(tree.schema());
        assert_eq!(all.len(), 3 + 3 + 1 + 2);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3 + 3 + 1 + 2, "each once");
        assert_eq!(tree.root().sum(keys[0].0.queries), 4);
        assert_eq!(tree.root().sum(keys[0].1.failed), 4);
    }
}
