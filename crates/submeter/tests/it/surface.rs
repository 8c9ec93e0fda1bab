//! The public surface: the traits of its types and the small conveniences.

use std::collections::{BTreeSet, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, MetricKind, Nanoseconds, Quota, Schema, Tree,
    UnitKind, switch,
};

use crate::met::until_met;
use crate::stop::StopOnDrop;

struct Fixture {
    tree: Tree,
    requests: Counter<Count>,
    queued: Gauge<Bytes>,
    latency: Histogram<Nanoseconds>,
    memory: Quota<Bytes>,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let queued = schema.gauge("queued", "Bytes queued");
    let latency = schema.histogram("latency", "Of requests", Buckets::LATENCY_NS);
    let memory = schema.quota("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Fixture { tree, requests, queued, latency, memory }
}

#[test]
fn keys_can_be_compared_and_looked_up() {
    let (f, other) = (fixture(), fixture());
    assert!(f.requests == f.requests && f.requests != other.requests);
    let names: HashMap<Counter<Count>, &str> =
        [(f.requests, "here"), (other.requests, "there")].into_iter().collect();
    assert_eq!((names[&f.requests], names[&other.requests]), ("here", "there"));
    assert_ne!(f.queued, other.queued);
    assert_ne!(f.latency, other.latency);
    assert_ne!(f.memory, other.memory);
}

#[test]
fn groups_are_ordered_as_a_tree_is_printed() {
    let f = fixture();
    let paths = ["/a-b", "/a/b/c", "/b", "/a!", "/a/-"];
    let mut groups = BTreeSet::new();
    for path in paths {
        let mut group = Some(f.tree.get_or_create(path).expect("room"));
        while let Some(at) = group {
            group = at.parent().cloned();
            groups.insert(at);
        }
    }
    let printed: Vec<String> = groups.iter().map(ToString::to_string).collect();
    assert_eq!(printed, ["/", "/a", "/a/-", "/a/b", "/a/b/c", "/a!", "/a-b", "/b"]);
    let snapshot = f.tree.snapshot();
    assert_eq!(printed, snapshot.groups().iter().map(|g| g.path()).collect::<Vec<_>>());

    // A killed group and its successor differ, and the older one is less.
    let before = f.tree.get("/b").expect("made");
    before.kill().expect("a leaf");
    let after = f.tree.create("/b").expect("free");
    assert!(before < after && before != after && before.path() == after.path());
}

#[test]
fn what_people_print_has_a_text() {
    let f = fixture();
    let root = f.tree.root();
    root.add(f.requests, 7);
    assert_eq!(
        root.read(f.requests).to_string(),
        format!("0 ± {}", root.read(f.requests).max_error)
    );
    root.record_duration(f.latency, Duration::from_micros(5));
    root.adjust(f.queued, -3);
    let held = root.try_charge(f.memory, 60).expect("no limit");
    assert_eq!(root.usage(f.memory).to_string(), "60");
    root.set_limit(f.memory, Some(50));
    assert_eq!(root.usage(f.memory).to_string(), "60 of 50");

    let report = f.tree.flush().to_string();
    assert!(report.starts_with("1 groups, ") && report.ends_with('s'), "{report}");
    assert_eq!(root.read(f.requests).to_string(), "7");
    let snapshot = f.tree.snapshot();
    let values = snapshot.get("/").expect("the root");
    let text = |name: &str| {
        let metric = snapshot.schema().metric(name).expect("declared");
        (metric.kind().to_string(), metric.unit().to_string(), values.value(metric).to_string())
    };
    let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(text("requests"), owned("counter", "count", "7"));
    assert_eq!(text("queued"), owned("gauge", "bytes", "-3"));
    assert_eq!(text("memory"), owned("quota", "bytes", "60 of 50"));
    let latency = text("latency");
    assert!(latency.2.starts_with("1 values, ") && latency.1 == "nanoseconds", "{latency:?}");
    assert_eq!(
        format!("[{:>8}] [{:<8}]", MetricKind::Gauge, UnitKind::Bytes),
        "[   gauge] [bytes   ]"
    );
    drop(held);
}

#[test]
fn a_snapshot_finds_every_group_and_no_other() {
    let f = fixture();
    for n in 0..1000 {
        f.tree.get_or_create(&format!("/{}/{n}", n % 7)).expect("room").add(f.requests, n);
    }
    let snapshot = f.tree.snapshot();
    assert_eq!((&snapshot).into_iter().count(), 1008);
    for group in &snapshot {
        let found = snapshot.get(group.path()).expect("it is there");
        assert!(std::ptr::eq(found, group));
    }
    assert_eq!(snapshot.get("/3/10").expect("made").counter(f.requests), 10);
    assert!(snapshot.get("/3/11").is_none() && snapshot.get("3/10").is_none());
    assert_eq!(snapshot.clone().get("/").expect("the root").counter(f.requests), 499_500);
}

#[test]
fn the_last_setting_of_a_gauge_holds_stress() {
    const THREADS: i64 = 3;
    let rounds = if cfg!(miri) { 10 } else { 1_000 };
    let f = fixture();
    let (web, mail) = (f.tree.create("/web").expect("room"), f.tree.create("/mail").expect("room"));
    mail.set(f.queued, 1000);
    let mut sums = Vec::new();
    let round = Barrier::new(1 + usize::try_from(THREADS).expect("few"));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (web, round, queued) = (&web, &round, f.queued);
            scope.spawn(move || {
                for _ in 0..rounds {
                    round.wait();
                    // The racing sets find a far larger value than they leave.
                    web.adjust(queued, 1_000_000);
                    web.set(queued, thread);
                    // Equal moves up and down must leave no trace.
                    web.inc(queued);
                    web.dec(queued);
                    web.adjust(queued, 1_000_000);
                    web.set(queued, -thread);
                    round.wait();
                }
            });
        }
        // The sum is read while nothing changes: otherwise it may miss any number of moves between
        // the reads of the first and the last CPU's part.
        for _ in 0..rounds {
            round.wait();
            round.wait();
            sums.push(web.sum(f.queued));
        }
    });
    // Not in the loop: after a panic there, the other threads would never leave the barrier.
    assert!(sums.iter().all(|sum| sum.abs() <= 2 * THREADS), "sets add up: {sums:?}");
    for value in [5, i64::MIN, i64::MAX, 0, -7] {
        web.set(f.queued, value);
        assert_eq!(web.sum(f.queued), value);
    }
    assert_eq!(f.tree.root().sum(f.queued), 993);
}

#[test]
fn a_distribution_is_read_with_its_bound_stress() {
    const EACH: u64 = 40_000;
    let f = fixture();
    let groups: Vec<_> =
        (0..3).map(|n| f.tree.get_or_create(&format!("/p/{n}")).expect("room")).collect();
    std::thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| (0..EACH).for_each(|n| group.record(f.latency, n * 100)));
        }
    });
    // All calls have returned, so the exact value is known and the read must be within its bound.
    let parent = f.tree.get("/p").expect("made");
    let reading = parent.read_histogram(f.latency);
    let all = EACH * groups.len() as u64;
    assert!(reading.value.count() + reading.max_error >= all, "{}", reading.max_error);
    assert_eq!(groups[0].sum_histogram(f.latency).count(), EACH);
    assert_eq!(groups[0].read_histogram(f.latency).value.count(), EACH);
    assert_eq!(parent.sum_histogram(f.latency).count(), all);
    let reading = parent.read_histogram(f.latency);
    assert_eq!((reading.value.count(), reading.max_error), (all, 0));

    // One more record: the bound is less than a batch for each word in the two lines that it marks,
    // that of its bucket and that of the sum.
    groups[0].record(f.latency, 1_000_000);
    let bound = parent.read_histogram(f.latency).max_error;
    assert!((1..=2 * 8 * 4095).contains(&bound), "{bound}");
}

#[test]
fn set_limit_answers_about_its_own_limit_stress() {
    let f = fixture();
    let held = f.tree.root().try_charge(f.memory, 60).expect("no limit yet");
    let (rounds, stop) = (if cfg!(miri) { 50 } else { 300_000 }, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                f.tree.root().set_limit(f.memory, Some(1000));
            }
        });
        until_met(rounds, || {
            assert_eq!(f.tree.root().set_limit(f.memory, Some(50)).excess(), 10);
            // The other thread came in between.
            f.tree.root().usage(f.memory).limit == Some(1000)
        });
    });
    drop(held);
}

/// A limit error names the quota, and after a limit was lowered, the excess.
#[test]
fn limit_errors_name_the_quota_and_the_excess() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("room");
    let held = web.try_charge(f.memory, 60).expect("no limit");
    let met = f.tree.get("/acme").expect("made").set_limit(f.memory, Some(50));
    assert_eq!((met.current, met.limit, met.excess()), (60, Some(50), 10));
    let error = web.try_charge(f.memory, 1).expect_err("beyond");
    assert_eq!((error.metric().name(), error.metric().unit()), ("memory", UnitKind::Bytes));
    assert_eq!(f.tree.root().set_limit(f.memory, None).excess(), 0);
    drop(held);
}

#[cfg(debug_assertions)]
#[test]
fn a_killed_groups_holders_are_found_here() {
    let f = fixture();
    let made = (f.tree.create("/web").expect("room"), line!());
    let found = (f.tree.get("/web").expect("made"), line!());
    let got = (f.tree.get_or_create("/web").expect("made"), line!());
    let cloned = (made.0.clone(), line!());
    let child = (f.tree.root().child("web").expect("made"), line!());
    let charge = (made.0.try_charge(f.memory, 1).expect("no limit"), line!());
    let entered = (made.0.enter(), line!());
    let current = (switch::current().expect("entered"), line!());
    let children = (f.tree.root().children(), line!());
    let killed = made.0.kill().expect("a leaf");
    let lines = [made.1, found.1, got.1, cloned.1, child.1, charge.1, entered.1, current.1];
    let mut expected: Vec<u32> = lines.into_iter().chain([children.1]).collect();
    let mut places = Vec::new();
    for (place, held) in killed.holders().places() {
        let place = place.expect("few places");
        assert_eq!((place.file(), held), (file!(), 1), "{place}");
        places.push(place.line());
    }
    places.sort_unstable();
    expected.sort_unstable();
    assert_eq!(places, expected);
    drop((found, got, cloned, child, charge, current, children));
    drop(entered);
}

fn json(value: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("numbers, strings and maps")
}

#[test]
fn what_is_read_has_a_shape_for_serde() {
    let f = fixture();
    let web = f.tree.create("/web").expect("room");
    web.add(f.requests, 7);
    web.adjust(f.queued, -3);
    web.record(f.latency, 5_000);
    web.record(f.latency, u64::MAX >> 8);
    let held = web.try_charge(f.memory, 60).expect("no limit");
    web.set_limit(f.memory, Some(100));

    let report = json(f.tree.flush());
    assert_eq!((&report["groups"], &report["joined"]), (&2.into(), &false.into()));
    let reading = json(web.read(f.requests));
    assert_eq!((&reading["value"], &reading["max_error"]), (&7.into(), &0.into()));
    assert!(reading["age_ns"].is_u64());
    let snapshot = json(f.tree.snapshot());
    assert!(snapshot["unix_ms"].as_u64().is_some_and(|ms| ms > 1_600_000_000_000));
    let values = serde_json::json!({
        "requests": 7,
        "queued": -3,
        "latency": { "count": 2, "sum": 5_000 + (u64::MAX >> 8), "buckets": [[5120, 1], [null, 1]] },
        "memory": { "current": 60, "peak": 60, "peak_low": 60, "limit": 100, "refused": 0,
            "overdrafts": 0, "mode": "enforced", "high": null, "min": null,
            "low": null, "paused": 0, "postponed": 0, "reclaimed": 0, "reclaimed_low": 0,
            "panics": 0 },
    });
    assert_eq!(snapshot["groups"][1], serde_json::json!({ "path": "/web", "values": values }));
    assert_eq!(json(MetricKind::Quota), "quota");
    assert_eq!(json(UnitKind::Nanoseconds), "nanoseconds");
    drop(held);
}

/// The top of a snapshot has no parents, and keeps the order of equals.
#[test]
fn the_top_has_no_parents() {
    let mut schema = Schema::builder();
    let level = schema.gauge::<Count>("level", "");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    for (path, n) in [("/b/c", -5), ("/b/d", 3), ("/a", 3), ("/e", 9)] {
        tree.get_or_create(path).expect("room").set(level, n);
    }
    let snapshot = tree.snapshot();
    let top = |n| snapshot.top(n, level).iter().map(|group| group.path()).collect::<Vec<_>>();
    assert_eq!(top(3), ["/e", "/a", "/b/d"]);
    assert_eq!(top(9), ["/e", "/a", "/b/d", "/b/c"]);
    assert!(top(0).is_empty());
}
