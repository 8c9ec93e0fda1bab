//! Own values in snapshots: what a group itself counted, as of the snapshot's flush.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Nanoseconds, Schema, Tree, Value,
};

use crate::met::until_met;
use crate::stop::StopOnDrop;

struct Fixture {
    tree: Tree,
    requests: Counter<Count>,
    queued: Gauge<Bytes>,
    latency: Histogram<Nanoseconds>,
}

/// With a section of its own for the gauge, so that there are two flushes.
fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let latency = schema.histogram("latency", "Of requests", Buckets::powers(2, 6));
    schema.quota::<Bytes>("memory", "Memory held");
    let queued = schema.section("apart", |s| s.gauge("queued", "Bytes queued"));
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Fixture { tree, requests, queued, latency }
}

impl Fixture {
    /// Returns the own part of each live group: requests, values in the histogram, and bytes
    /// queued.
    fn own(&self) -> Vec<(String, u64, u64, i64)> {
        let snapshot = self.tree.snapshot_with_own();
        let own = |group: &submeter::GroupValues| {
            let mut found = (group.path().to_owned(), 0, 0, 0);
            for metric in snapshot.schema().metrics() {
                match group.own(metric) {
                    Some(Value::Counter(n)) => found.1 = n,
                    Some(Value::Histogram(own)) => found.2 = own.count(),
                    Some(Value::Gauge(n)) => found.3 = n,
                    own => assert_eq!((metric.name(), own), ("memory", None)),
                }
            }
            found
        };
        snapshot.groups().iter().map(own).collect()
    }
}

fn row(path: &str, requests: u64, recorded: u64, queued: i64) -> (String, u64, u64, i64) {
    (path.to_owned(), requests, recorded, queued)
}

/// Own values leave out descendants and what killed groups counted.
#[test]
fn own_values_leave_out_descendants() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("room");
    let acme = f.tree.get("/acme").expect("its parent");
    acme.add(f.requests, 2);
    acme.adjust(f.queued, -5);
    web.add(f.requests, 40);
    web.record(f.latency, 9);
    assert_eq!(f.own(), [row("/", 0, 0, 0), row("/acme", 2, 0, -5), row("/acme/web", 40, 1, 0)]);

    // Still counting, but in no snapshot: its counts are only in the totals above it.
    let killed = web.kill().expect("alive");
    web.add(f.requests, 1);
    assert_eq!(f.own(), [row("/", 0, 0, 0), row("/acme", 2, 0, -5)]);
    drop(web);
    assert!(killed.is_released());
    f.tree.flush();
    assert_eq!(acme.sum(f.requests), 43);

    // The next group of that name has the same storage, and starts from zero.
    f.tree.get_or_create("/acme/web").expect("room").add(f.requests, 7);
    assert_eq!(f.own()[2], row("/acme/web", 7, 0, 0));
}

/// What a group leaves of a gauge is its parent's own, which takes it off as it is given back.
#[test]
fn what_is_left_of_a_gauge_is_the_parents_own() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("room");
    let acme = f.tree.get("/acme").expect("its parent");
    web.adjust(f.queued, 30);
    web.add(f.requests, 1);
    acme.adjust(f.queued, 4);
    web.kill().expect("alive");
    drop(web);
    f.tree.flush();
    assert_eq!(f.own(), [row("/", 0, 0, 0), row("/acme", 0, 0, 34)]);
    acme.adjust(f.queued, -20);
    assert_eq!(f.own()[1], row("/acme", 0, 0, 14));

    // All of it goes on to the root, and none to the next groups with the same storage.
    acme.kill().expect("alive");
    drop(acme);
    f.tree.flush();
    f.tree.get_or_create("/acme/web").expect("room");
    assert_eq!(f.own(), [row("/", 0, 0, 14), row("/acme", 0, 0, 0), row("/acme/web", 0, 0, 0)]);
    f.tree.root().adjust(f.queued, -14);
    assert_eq!((f.own()[0].3, f.tree.root().sum(f.queued)), (0, 0));
}

/// Own values of lines that change between any two flushes are current.
#[test]
fn own_values_of_changing_lines_are_current() {
    let f = fixture();
    let web = f.tree.create("/web").expect("room");
    // First so often that the lines keep their marks, then so long without a change that they lose
    // them.
    for n in 1..=30_u64 {
        let changes = n.min(12);
        if n <= 12 {
            web.inc(f.requests);
            web.adjust(f.queued, 1);
        }
        f.tree.root().inc(f.requests);
        assert_eq!(f.own(), [row("/", n, 0, 0), row("/web", changes, 0, changes as i64)]);
    }
}

/// Own values add up to the total while threads count.
#[test]
fn own_values_add_up_to_the_total_stress() {
    let f = fixture();
    let leaves = ["/a", "/a/b", "/c"].map(|path| f.tree.get_or_create(path).expect("room"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = StopOnDrop(&done);
        for leaf in &leaves {
            let (requests, done) = (f.requests, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    leaf.inc(requests);
                }
            });
        }
        let mut last = 0;
        until_met(200, || {
            let snapshot = f.tree.snapshot_with_own();
            let total = snapshot.groups()[0].counter(f.requests);
            let own = snapshot.groups().iter().map(|group| {
                match group.own(&snapshot.schema().metrics()[0]) {
                    Some(Value::Counter(n)) => n,
                    own => panic!("{own:?} of a counter"),
                }
            });
            assert_eq!(own.sum::<u64>(), total);
            // While threads count.
            let before = std::mem::replace(&mut last, total);
            before != 0 && total != before
        });
        drop(stop);
    });
    assert!(f.tree.root().sum(f.requests) > 0);
}

#[test]
fn a_plain_snapshot_has_no_own_values() {
    let f = fixture();
    let snapshot = f.tree.snapshot();
    let metrics = snapshot.schema().metrics();
    assert!(metrics.iter().all(|metric| snapshot.groups()[0].own(metric).is_none()));
}

#[test]
#[should_panic(expected = "the metric belongs to the schema of another tree")]
fn own_values_refuse_a_metric_of_another_tree() {
    let (f, other) = (fixture(), fixture());
    let snapshot = f.tree.snapshot_with_own();
    let _ = snapshot.groups()[0].own(&other.tree.schema().metrics()[0]);
}
