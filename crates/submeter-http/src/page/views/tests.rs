//! Views over a program that is not a cache.

use submeter::{Buckets, Bytes, Count, Group, Nanoseconds, Rate, Schema, Snapshot, Tree};

use super::super::api;
use super::super::wire::ValueDoc;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A program that is not a cache.
struct Program {
    tree: Tree,
    jobs: Counter<Count>,
    failed: Counter<Count>,
    cpu: Counter<Nanoseconds>,
    disk: Quota<Bytes>,
    waits: Histogram<Nanoseconds>,
}

impl Program {
    fn new() -> Program {
        let mut s = Schema::builder();
        let (jobs, failed) = (s.counter("jobs", "Jobs"), s.counter("failed", "Failures"));
        let cpu = s.cpu_time("cpu", "CPU time");
        let disk = s.quota("disk", "Disk");
        let waits = s.histogram("waits", "Waits", Buckets::LATENCY_NS);
        let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
        Program { tree, jobs, failed, cpu, disk, waits }
    }

    fn views(&self) -> Views {
        Views::new(vec![
            View::rate("jobs", "Jobs/s", [self.jobs, self.failed]),
            View::ratio("failures", "Failed", self.failed, [self.jobs, self.failed]),
            View::rate("cpu", "CPU", [self.cpu]),
            View::held("disk", "Disk", self.disk).within("limit"),
            View::limit("limit", "Limit", self.disk).place(Placement::Nowhere),
            View::refusals("refused", "Refused/s", self.disk).trouble(),
            View::quantile("wait", "p50", self.waits, 0.5),
        ])
    }

    fn group(&self) -> Group {
        self.tree.get_or_create("/a").expect("a legal path")
    }
}

fn figures(
    views: &Views,
    now: &Snapshot,
    before: Option<&Snapshot>,
    window: Duration,
) -> Vec<Option<f64>> {
    let group = |snapshot: &Snapshot| snapshot.get("/a").expect("it lives").clone();
    let before = before.map(group);
    views.figures(&group(now), before.as_ref(), window).iter().map(|figure| figure.0).collect()
}

#[test]
fn figures_are_of_between_two_samples() {
    let program = Program::new();
    let (views, group) = (program.views(), program.group());
    group.add(program.jobs, 6);
    group.add(program.cpu, 500_000_000);
    group.set_limit(program.disk, Some(100));
    let held = group.try_charge(program.disk, 60).expect("it fits");
    let first = program.tree.snapshot();
    let new = figures(&views, &first, None, SECOND);
    let expected = [Some(6.0), Some(0.0), Some(0.5), Some(60.0), Some(100.0), Some(0.0), None];
    assert_eq!(new, expected);

    group.add(program.jobs, 3);
    group.add(program.failed, 1);
    group.record(program.waits, 1000);
    group.try_charge(program.disk, 60).expect_err("the limit");
    let second = program.tree.snapshot();
    drop(held);
    let next = figures(&views, &second, Some(&first), 2 * SECOND);
    assert_eq!(next[..6], [2.0, 0.25, 0.0, 60.0, 100.0, 0.5].map(Some));
    assert!(next[6].is_some_and(|wait| (500.0..2000.0).contains(&wait)), "{next:?}");
}

#[test]
fn refusals_show_where_the_limit_is_and_above() {
    let program = Program::new();
    let web = program.tree.get_or_create("/acme/web").expect("a legal path");
    let acme = web.parent().expect("below the root");
    acme.set_limit(program.disk, Some(10));
    web.set_limit(program.disk, Some(5));
    let first = program.tree.snapshot();
    for n in [6, 7, 8] {
        web.try_charge(program.disk, n).expect_err("its own limit");
    }
    acme.try_charge(program.disk, 11).expect_err("its limit");
    // A refusal for lack of room above it is the level's.
    let held = acme.try_charge(program.disk, 9).expect("it fits");
    web.try_charge(program.disk, 4).expect_err("the limit above");
    let second = program.tree.snapshot();
    drop(held);
    for views in [program.views(), Views::of(program.tree.schema())] {
        let at = views.docs().position(|doc| doc.is_refusal).expect("one of the quota");
        let shown = |path| {
            let [first, second] = [&first, &second].map(|of| of.get(path).expect("it lives"));
            views.figures(second, Some(first), SECOND)[at].0
        };
        assert_eq!(["/", "/acme", "/acme/web"].map(shown), [5.0, 5.0, 3.0].map(Some));
    }
}

#[test]
fn an_overflowing_sum_goes_on_growing() {
    let program = Program::new();
    let (views, group) = (program.views(), program.group());
    group.add(program.jobs, u64::MAX);
    let first = program.tree.snapshot();
    group.add(program.failed, 3);
    let second = program.tree.snapshot();
    group.add(program.failed, 5);
    let third = program.tree.snapshot();
    let [full, over] = [(&first, &second), (&second, &third)]
        .map(|(before, now)| figures(&views, now, Some(before), SECOND)[0]);
    assert_eq!((full, over), (Some(0.0), Some(5.0)), "once it seems to start anew");
}

#[test]
fn a_rate_of_nothing_is_a_limit() {
    let mut s = Schema::builder();
    let calls = s.rate_limit::<Count>("calls", "Calls");
    let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
    let group = tree.create("/a").expect("a legal path");
    let views = Views::new(vec![View::rate_limit("rate", "Rate", calls)]);
    let shown = || figures(&views, &tree.snapshot(), None, SECOND)[0];
    assert_eq!(shown(), None);
    group.set_rate(calls, Some(Rate::NOTHING)).expect("a rate of its own kind");
    assert_eq!(shown(), Some(0.0));
    group.set_rate(calls, Some(Rate::new(30, 60 * SECOND))).expect("it can be kept");
    assert_eq!(shown(), Some(0.5));
}

/// A group that does nothing is idle, whatever it holds.
#[test]
fn a_group_that_does_nothing_is_idle() {
    let program = Program::new();
    let (views, group) = (program.views(), program.group());
    let held = group.try_charge(program.disk, 60).expect("no limit");
    let first = program.tree.snapshot();
    group.add(program.failed, 1);
    let second = program.tree.snapshot();
    drop(held);
    let at = |snapshot: &Snapshot| snapshot.get("/a").expect("it lives").clone();
    let idle = views.figures(&at(&first), Some(&at(&first)), SECOND);
    let busy = views.figures(&at(&second), Some(&at(&first)), SECOND);
    assert_eq!((views.is_active(&idle), views.is_active(&busy)), (false, true));
    let no_time = views.figures(&at(&second), None, Duration::ZERO);
    assert_eq!(no_time[0], Figure(Some(0.0)), "the first sample has no rates");
}

#[test]
fn levels_are_brought_up_to_date_and_rates_stay() {
    let program = Program::new();
    let (views, group) = (program.views(), program.group());
    group.add(program.jobs, 4);
    let first = program.tree.snapshot();
    let mut figures = views.figures(first.get("/a").expect("it lives"), None, SECOND);
    let held = group.try_charge(program.disk, 60).expect("no limit");
    group.add(program.jobs, 4);
    let second = program.tree.snapshot();
    drop(held);
    views.freshen(&mut figures, second.get("/a").expect("it lives"));
    assert_eq!((figures[0], figures[3]), (Figure(Some(4.0)), Figure(Some(60.0))));
}

#[test]
fn undeclared_views_are_what_metrics_suggest() {
    let mut s = Schema::builder();
    let jobs = s.counter::<Count>("jobs_done", "Jobs done");
    let sent = s.counter::<Bytes>("sent", "Bytes sent");
    let cpu = s.cpu_time("cpu", "CPU time");
    let queued = s.gauge::<Count>("rpc_queued", "Jobs that wait");
    let disk = s.quota::<Bytes>("disk", "Disk");
    let waits = s.histogram::<Nanoseconds>("waits", "Waits", Buckets::LATENCY_NS);
    let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
    let views = Views::of(tree.schema());
    let shown = |doc: &ViewDoc| (doc.key.clone(), doc.title.clone(), doc.shape, doc.place);
    let shown: Vec<_> = views.docs().map(shown).collect();
    let row =
        |key: &str, title: &str, shape, place| (key.to_owned(), title.to_owned(), shape, place);
    assert_eq!(
        shown,
        [
            row("jobs_done_per_s", "Jobs done/s", Shape::Rate, Placement::Headline),
            row("sent_per_s", "Sent/s", Shape::ByteRate, Placement::Headline),
            row("cpu_cores", "CPU", Shape::Cores, Placement::Headline),
            row("rpc_queued", "RPC queued", Shape::Count, Placement::Headline),
            row("disk", "Disk", Shape::Bytes, Placement::Headline),
            row("disk_limit", "Disk limit", Shape::Bytes, Placement::Nowhere),
            row("disk_refused_per_s", "Disk refused/s", Shape::Rate, Placement::Table),
            row("disk_pressure", "Disk stalls", Shape::Share, Placement::Table),
            row("waits_p99", "Waits p99", Shape::Time, Placement::Headline),
        ]
    );
    let held = views.docs().nth(4).expect("the quota");
    assert_eq!((held.limit.as_deref(), &*held.help), (Some("disk_limit"), "Disk"));
    assert_eq!((views.noun(6), views.refusing(6)), ("over its disk limit", Some(5)));
    let trouble: Vec<&str> =
        views.docs().filter(|doc| doc.is_trouble).map(|doc| &*doc.key).collect();
    assert_eq!(trouble, ["disk_refused_per_s", "disk_pressure"]);

    let group = tree.get_or_create("/a").expect("a legal path");
    let first = tree.snapshot();
    group.add(jobs, 6);
    group.add(sent, 4096);
    group.add(cpu, 500_000_000);
    group.set(queued, 3);
    group.set_limit(disk, Some(100));
    let disk = group.try_charge(disk, 60).expect("it fits");
    group.record(waits, 1000);
    let second = tree.snapshot();
    drop(disk);
    let figures = figures(&views, &second, Some(&first), 2 * SECOND);
    assert_eq!(figures[..8], [3.0, 2048.0, 0.25, 3.0, 60.0, 100.0, 0.0, 0.0].map(Some));
    assert!(figures[8].is_some_and(|wait| (500.0..2048.0).contains(&wait)), "{figures:?}");
}

/// A rate limit is shown with its refusals, and its time is not shown as CPU time.
#[test]
fn a_rate_limit_is_shown_with_what_it_refuses() {
    let mut s = Schema::builder();
    s.rate_limit::<Count>("calls", "Calls");
    s.counter::<Count>("odd_throttled", "Of no rate limit");
    let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
    let views = Views::of(tree.schema());
    let shown = |doc: &ViewDoc| (doc.key.clone(), doc.place, doc.is_refusal, doc.is_contended);
    let shown: Vec<_> = views.docs().map(shown).collect();
    let row = |key: &str, place, refuses, contended| (key.to_owned(), place, refuses, contended);
    assert_eq!(
        shown,
        [
            row("calls_throttled_per_s", Placement::Table, true, false),
            row("calls_limit", Placement::Detail, false, false),
            row("calls_throttled_time_cores", Placement::Detail, false, false),
            row("calls_overdrafts_per_s", Placement::Detail, false, false),
            row("odd_throttled_per_s", Placement::Headline, false, true),
        ]
    );
    assert_eq!((views.noun(0), views.refusing(0)), ("over its calls limit", Some(1)));
}

#[test]
fn use_of_a_rate_limit_is_shown_within_it() {
    let mut s = Schema::builder();
    let cpu = s.cpu_time("cpu", "CPU time");
    let budget = s.cpu_budget("budget", "CPU time");
    let calls = s.rate_limit::<Count>("calls", "Calls");
    s.counter::<Count>("calls", "Calls");
    s.counter::<Count>("sent", "How often something was sent");
    let sent = s.rate_limit::<Bytes>("sent", "Bytes sent");
    let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
    let views = Views::of(tree.schema());
    let within: Vec<_> =
        views.docs().filter_map(|doc| Some((&*doc.key, doc.limit.as_deref()?))).collect();
    assert_eq!(within, [("cpu_cores", "budget_limit"), ("calls_per_s", "calls_limit")]);
    let group = tree.create("/a").expect("a legal path");
    group.add(cpu, 500_000_000);
    let nothing = figures(&views, &tree.snapshot(), None, SECOND);
    let rate = |amount| Some(Rate::new(amount, 2 * SECOND));
    group.set_rate(budget, rate(500_000_000)).expect("it can be kept");
    group.set_rate(calls, rate(3000)).expect("it can be kept");
    group.set_rate(sent, rate(1 << 20)).expect("it can be kept");
    let set = figures(&views, &tree.snapshot(), None, SECOND);
    let limits = [
        ("budget_limit", Shape::Cores, 0.25, Placement::Nowhere),
        ("calls_limit", Shape::Rate, 1500.0, Placement::Nowhere),
        ("sent_limit", Shape::ByteRate, f64::from(1 << 19), Placement::Detail),
    ];
    for (key, shape, limit, place) in limits {
        let at = views.place(key).expect("a view");
        let doc = views.docs().nth(at).expect("a view");
        assert_eq!((doc.shape, doc.place), (shape, place), "{key}");
        assert_eq!((nothing[at], set[at]), (None, Some(limit)), "{key}");
    }
}

#[test]
fn times_beside_cpu_time_take_from_nobody() {
    let mut s = Schema::builder();
    s.off_cpu("off", "Time without a processor");
    s.cpu_error("error", "What CPU time may be wrong by");
    s.cpu_time("cpu", "CPU time");
    s.counter::<Count>("jobs", "Jobs");
    let views = Views::of(&s.build().expect("distinct names"));
    let shown: Vec<_> = views.docs().map(|doc| (&*doc.key, doc.place, doc.is_contended)).collect();
    assert_eq!(
        shown,
        [
            ("off_cores", Placement::Detail, false),
            ("error_cores", Placement::Detail, false),
            ("cpu_cores", Placement::Headline, true),
            ("jobs_per_s", Placement::Headline, false),
        ]
    );
}

/// A group that waits for room has pressure in views and in JSON.
#[test]
fn waits_for_room_show_in_views_and_json() {
    let program = Program::new();
    let group = program.group();
    let views = Views::new(vec![View::pressure("stalls", "Stalls", program.disk)]);
    let defaults = Views::of(program.tree.schema());
    group.set_limit(program.disk, Some(1));
    group.set_high(program.disk, Some(1));
    let held = group.charge_forced(program.disk, 2);
    let value = |snapshot: &Snapshot| {
        let group = snapshot.get("/a").expect("it lives");
        serde_json::to_value(&api::values(snapshot.schema(), group)["disk"]).expect("JSON")
    };
    let quiet = program.tree.snapshot();
    assert_eq!(figures(&views, &quiet, None, SECOND), [Some(0.0)]);
    let json = serde_json::json!({
        "current": 2, "peak": 2, "limit": 1, "refused": 0, "overdrafts": 1, "high": 1,
    });
    assert_eq!(value(&quiet), json, "what there is not is left out");
    // Averages move every two seconds.
    let patience = std::time::Instant::now() + 60 * SECOND;
    let stalled = loop {
        let wait = Duration::from_millis(500);
        group.charge_blocking(program.disk, 1, wait).expect_err("it is full");
        let snapshot = program.tree.snapshot();
        if figures(&views, &snapshot, None, SECOND)[0] > Some(0.01) {
            break snapshot;
        }
        assert!(std::time::Instant::now() < patience, "no average has moved");
    };
    drop(held);
    let pressure = stalled.get("/a").expect("it lives").pressure(program.disk);
    let expected = Some(pressure.some.avg10 / 100.0);
    assert_eq!(figures(&views, &stalled, None, SECOND), [expected]);
    let at = defaults.docs().position(|doc| doc.is_pressure).expect("one of the quota");
    assert_eq!(figures(&defaults, &stalled, None, SECOND)[at], expected);
    let value = value(&stalled);
    let of = |pointer: &str| value.pointer(pointer).and_then(serde_json::Value::as_f64);
    assert_eq!(of("/pressure/some/avg10"), Some((pressure.some.avg10 * 100.0).round() / 100.0));
    assert_eq!(of("/pressure/some/total_us"), Some(pressure.some.total.as_micros() as f64));
    assert_eq!(of("/pressure/full/total_us"), Some(0.0), "it holds something");
}

#[test]
fn what_was_reclaimed_is_in_json_if_anything() {
    let program = Program::new();
    let group = program.group();
    group.set_low(program.disk, Some(8));
    program.tree.root().set_limit(program.disk, Some(10));
    let held = std::sync::Arc::new(std::sync::Mutex::new(Some(
        group.try_charge(program.disk, 8).expect("it fits"),
    )));
    let freed = std::sync::Arc::clone(&held);
    let registered = group.on_reclaim(program.disk, move |_| {
        drop(freed.lock().expect("nobody panics").take());
    });
    let new = program.tree.get_or_create("/b").expect("a legal path");
    drop(new.charge_reclaiming(program.disk, 10).expect("it is given up"));
    let snapshot = program.tree.snapshot();
    let of = |path: &str| {
        let group = snapshot.get(path).expect("it lives");
        serde_json::to_value(&api::values(snapshot.schema(), group)["disk"]).expect("JSON")
    };
    let json = serde_json::json!({
        "current": 0, "peak": 8, "limit": null, "refused": 0, "reclaimed": 8, "reclaimed_low": 1,
    });
    assert_eq!(of("/a"), json);
    assert!(of("/b").get("reclaimed").is_none(), "{}", of("/b"));
    drop(registered);
}

#[test]
fn what_an_older_server_says_of_a_quota_is_read() {
    let old = r#"{"current": 1, "peak": 2, "limit": null, "refused": 3}"#;
    let read: ValueDoc = serde_json::from_str(old).expect("it is one");
    let ValueDoc::Quota { refused: 3, overdrafts: 0, reclaimed: 0, pressure: None, .. } = read
    else {
        panic!("{read:?}")
    };
}

/// The detail has what does not fit on a screen, and keys stay distinct.
#[test]
fn what_fits_no_screen_is_in_the_detail() {
    let mut s = Schema::builder();
    s.gauge::<Count>("disk_limit", "A gauge with the name of another's view");
    s.quota::<Bytes>("disk", "Disk");
    for n in 0..12 {
        s.counter::<Count>(&format!("c{n}"), "One of many");
    }
    let schema = s.build().expect("distinct names");
    let views = Views::of(&schema);
    let at = |place| views.docs().filter(|doc| doc.place == place).count();
    let places =
        [Placement::Headline, Placement::Table, Placement::Detail, Placement::Nowhere].map(at);
    assert_eq!(places, [6, 5, 5, 1], "3 columns, and refusals and stalls");
    let keys: Vec<&str> = views.docs().map(|doc| &*doc.key).take(3).collect();
    assert_eq!(keys, ["disk_limit", "disk", "disk_limit_"]);
    let held = views.docs().nth(1).expect("the quota");
    assert_eq!(held.limit.as_deref(), Some("disk_limit_"));
    let refused = views.place("disk_refused_per_s").expect("the quota's");
    assert_eq!(views.refusing(refused), Some(2), "and no gauge");
}

#[test]
#[should_panic(expected = "two views have the key \"jobs\"")]
fn two_views_with_one_key_are_refused() {
    let program = Program::new();
    let view = || View::rate("jobs", "Jobs/s", [program.jobs]);
    let _ = Views::new(vec![view(), view()]);
}
