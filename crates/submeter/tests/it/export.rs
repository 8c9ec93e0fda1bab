//! An export as Prometheus sees it: increases over scrapes, for each of two scrapers, are those of
//! the tree, whatever groups come and go.

use std::collections::{BTreeMap, HashMap, HashSet};

use std::time::Duration;

use submeter::export::{Export, TOP_DEFAULT};
use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Group, Histogram, LimitMode, Quota, Schema, Tree,
};

use crate::witness::Witness;

/// What a server keeps for one target. It works like Prometheus, whose `increase` ignores the value
/// with which a series begins, and takes any fall for a restart from zero.
#[derive(Default)]
pub(crate) struct Server {
    last: HashMap<String, f64>,
    increase: BTreeMap<String, f64>,
    pub(crate) resets: usize,
    /// Whether the range is so short that a series begins again after it was missing from one
    /// scrape.
    forgets: bool,
}

impl Server {
    pub(crate) fn scrape(&mut self, text: &str) {
        let (mut now, gauges) = (HashMap::new(), gauges(text));
        for (series, value) in samples(text) {
            let new = match self.last.get(series) {
                None => 0.0,
                Some(&last) if value < last && !gauges.contains(name(series)) => {
                    self.resets += 1;
                    value
                }
                Some(&last) => value - last,
            };
            *self.increase.entry(series.to_owned()).or_default() += new;
            assert_eq!(now.insert(series.to_owned(), value), None, "twice: {series}");
        }
        if self.forgets {
            self.last.clear();
        }
        self.last.extend(now);
    }

    /// Returns the increase of all series of a metric together, `sum(increase(metric))`.
    fn sum(&self, metric: &str) -> f64 {
        let of = |(series, _): &(&String, &f64)| name(series) == metric;
        self.increase.iter().filter(of).map(|(_, increase)| increase).sum()
    }

    pub(crate) fn of(&self, series: &str) -> f64 {
        self.increase.get(series).copied().unwrap_or(0.0)
    }
}

fn name(series: &str) -> &str {
    series.split('{').next().expect("there is a first part")
}

/// Returns the names of the metrics that may fall.
fn gauges(text: &str) -> HashSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|metric| metric.strip_suffix(" gauge")).collect()
}

pub(crate) fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        (series, value.parse().expect("a number"))
    })
}

pub(crate) struct World {
    pub(crate) tree: Tree,
    pub(crate) requests: Counter<Count>,
    queued: Gauge<Bytes>,
    batch: Histogram<Count>,
    pub(crate) memory: Quota<Bytes>,
}

pub(crate) fn world() -> World {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let batch = schema.histogram("batch", "Sizes", Buckets::powers(2, 6));
    schema.quota::<Count>("streams", "Streams");
    let memory = schema.quota("memory", "Memory");
    let queued = schema.section("apart", |s| s.gauge("queued", "Bytes queued"));
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    World { tree, requests, queued, batch, memory }
}

impl World {
    pub(crate) fn add(&self, path: &str, n: u64) {
        self.tree.get_or_create(path).expect("room").add(self.requests, n);
    }

    /// Makes the limit of a group refuse charges.
    fn refuse(&self, group: &Group, times: u64) {
        group.set_limit(self.memory, Some(0));
        (0..times).for_each(|_| assert!(group.try_charge(self.memory, 1).is_err()));
    }

    /// Charges a group beyond its limit, which grants that because it is forced or the limit is
    /// soft.
    fn overdraw(&self, group: &Group, forced: bool) {
        group.set_limit(self.memory, Some(0));
        if forced {
            drop(group.charge_forced(self.memory, 1));
            return;
        }
        group.set_limit_mode(self.memory, LimitMode::Soft);
        drop(group.try_charge(self.memory, 1).expect("it is soft"));
        group.set_limit_mode(self.memory, LimitMode::Enforced);
    }

    pub(crate) fn kill(&self, path: &str) {
        drop(self.tree.get(path).expect("alive").kill_subtree().expect("not the root"));
    }

    pub(crate) fn text(&self, export: &Export) -> String {
        let mut text = String::new();
        export.write(&self.tree, &mut text).expect("a string");
        text
    }
}

pub(crate) fn one(group: &str) -> String {
    format!("app_requests_total{{group=\"{group}\"}}")
}

pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    samples(text).find(|(found, _)| *found == series).map(|(_, value)| value)
}

const REQUESTS: &str = "app_requests_total";
const REFUSED: &str = "app_memory_refused_total";
const OVERDRAFTS: &str = "app_memory_overdrafts_total";

#[test]
fn a_sum_over_all_groups_is_the_total() {
    let w = world();
    w.add("/", 1);
    w.add("/acme", 10);
    w.add("/acme/web", 100);
    w.tree.get("/acme/web").expect("alive").adjust(w.queued, 7);
    w.tree.get("/acme").expect("alive").adjust(w.queued, -2);
    let text = w.text(&Export::new("app"));
    let total = |metric: &str| -> f64 {
        let of = |(series, _): &(&str, f64)| series.split('{').next() == Some(metric);
        samples(&text).filter(of).map(|(_, value)| value).sum()
    };
    assert_eq!(total(REQUESTS), 111.0);
    assert_eq!(total("app_queued_bytes"), 5.0);
    assert_eq!(value(&text, &one("/acme")), Some(10.0));
}

/// Usage of a quota adds up over groups; what a limit bounds is a series beside it.
#[test]
fn usage_adds_up_beside_what_limits_bound() {
    let w = world();
    let web = w.tree.get_or_create("/acme/web").expect("room");
    let acme = w.tree.get("/acme").expect("alive");
    acme.set_limit(w.memory, Some(100));
    let held = (acme.try_charge(w.memory, 10).expect("fits"), web.try_charge(w.memory, 50));
    assert!(web.try_charge(w.memory, 41).is_err());
    let text = w.text(&Export::new("app"));
    let of =
        |name: &str, group: &str| value(&text, &format!("app_memory_{name}{{group=\"{group}\"}}"));
    assert_eq!(["/", "/acme", "/acme/web"].map(|g| of("bytes", g)), [0.0, 10.0, 50.0].map(Some));
    assert_eq!(
        (of("subtree_bytes", "/acme"), of("limit_bytes", "/acme")),
        (Some(60.0), Some(100.0))
    );
    assert_eq!(of("subtree_bytes", "/"), None, "it has no limit");
    assert_eq!(of("refused_total", "/acme"), Some(1.0));
    drop(held);
}

/// The last requests of a killed group are neither lost nor counted twice.
#[test]
fn a_killed_groups_last_requests_count_once() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    w.add("/acme/web", 100);
    server.scrape(&w.text(&export));
    w.add("/acme/web", 5);
    server.scrape(&w.text(&export));
    w.add("/acme/web", 7);
    w.kill("/acme/web");
    let after = w.text(&export);
    server.scrape(&after);
    assert_eq!(server.sum(REQUESTS), 12.0);
    assert_eq!(server.of(&one("/acme//other")), 7.0, "{after}");
    assert_eq!(value(&after, &one("/acme/web")), None, "its series has ended");
}

#[test]
fn refusals_are_counted_once_over_scrapes() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    let refuse = |times| w.refuse(&w.tree.get_or_create("/acme").expect("room"), times);
    refuse(2);
    server.scrape(&w.text(&export));
    refuse(3);
    server.scrape(&w.text(&export));
    server.scrape(&w.text(&export));
    assert_eq!(server.sum(REFUSED), 3.0);
    w.kill("/acme");
    refuse(4);
    server.scrape(&w.text(&export));
    assert_eq!((server.sum(REFUSED), server.resets), (7.0, 0));
    assert_eq!(server.sum("app_streams_refused_total"), 0.0, "none of another quota");
}

/// Refusals of a new group are in `other` until its series has begun at zero.
#[test]
fn new_refusals_are_in_other_at_first() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    w.add("/old", 1);
    server.scrape(&w.text(&export));
    let new = w.tree.get_or_create("/new").expect("room");
    w.refuse(&new, 5);
    let text = w.text(&export);
    server.scrape(&text);
    let of = |group: &str| format!("{REFUSED}{{group=\"{group}\"}}");
    assert_eq!((value(&text, &of("/new")), server.of(&of("//other"))), (Some(0.0), 5.0));
    w.refuse(&new, 2);
    server.scrape(&w.text(&export));
    assert_eq!((server.of(&of("/new")), server.sum(REFUSED)), (2.0, 7.0));
}

/// Refusals between a group's last scrape and its release are counted.
#[test]
fn refusals_after_the_last_scrape_count() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    let group = w.tree.get_or_create("/acme/web").expect("room");
    w.refuse(&group, 1);
    server.scrape(&w.text(&export));
    w.refuse(&group, 2);
    w.kill("/acme/web");
    w.refuse(&group, 3);
    drop(group);
    server.scrape(&w.text(&export));
    server.scrape(&w.text(&export));
    assert_eq!((server.sum(REFUSED), server.resets), (5.0, 0));
}

#[test]
fn overdrafts_count_where_the_limit_is() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let web = w.tree.get_or_create("/acme/web").expect("room");
    let acme = w.tree.get("/acme").expect("alive");
    w.overdraw(&acme, true);
    // At two limits on the way.
    w.overdraw(&web, true);
    let fits = acme.charge_forced(w.memory, 0);
    let text = w.text(&export);
    let of = |group: &str| value(&text, &format!("{OVERDRAFTS}{{group=\"{group}\"}}"));
    assert_eq!(["/", "/acme", "/acme/web"].map(of), [0.0, 2.0, 1.0].map(Some));
    let usages = [&acme, &web].map(|group| group.usage(w.memory).overdrafts);
    assert_eq!(usages, [2, 1]);
    drop(fits);
}

/// A waiting charge that exceeds a soft limit is an overdraft.
#[test]
fn a_waiting_charge_can_be_an_overdraft() {
    let w = world();
    let group = w.tree.create("/acme").expect("room");
    group.set_limit(w.memory, Some(0));
    group.set_limit_mode(w.memory, LimitMode::Soft);
    drop(group.charge_blocking(w.memory, 1, Duration::ZERO).expect("it is soft"));
    let mut waits = std::pin::pin!(group.charge(w.memory, 1));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_ready());
    let text = w.text(&Export::new("app"));
    assert_eq!(value(&text, &format!("{OVERDRAFTS}{{group=\"/acme\"}}")), Some(2.0), "{text}");
}

#[test]
fn a_name_created_again_continues_its_series() {
    let w = world();
    let export = Export::new("app");
    let mut server = Server::default();
    w.add("/acme", 100);
    server.scrape(&w.text(&export));
    // More than before, so that no fall reveals the restart.
    w.kill("/acme");
    w.add("/acme", 150);
    server.scrape(&w.text(&export));
    assert_eq!((server.sum(REQUESTS), server.of(&one("/acme"))), (150.0, 150.0));
    // Ended meanwhile, and repeated to the second scraper.
    w.add("/acme", 3);
    w.kill("/acme");
    server.scrape(&w.text(&export));
    w.add("/acme", 20);
    server.scrape(&w.text(&export));
    w.add("/acme", 1);
    server.scrape(&w.text(&export));
    assert_eq!(server.sum(REQUESTS), 174.0);
    assert_eq!(server.resets, 0);
}

/// A new series begins at zero; until then its group is in `other`.
#[test]
fn a_new_series_begins_at_zero() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    w.add("/old", 1);
    server.scrape(&w.text(&export));
    w.add("/new", 40);
    let text = w.text(&export);
    server.scrape(&text);
    assert_eq!(value(&text, &one("/new")), Some(0.0));
    assert_eq!(server.of(&one("//other")), 40.0);
    w.add("/new", 2);
    server.scrape(&w.text(&export));
    assert_eq!((server.of(&one("/new")), server.sum(REQUESTS)), (2.0, 42.0));
}

/// The groups with the most are shown, and each stays until another group has a quarter more.
#[test]
fn the_top_changes_for_a_quarter_more() {
    let w = world();
    let export = Export::new("app").top(1, w.requests).scrapers(1);
    w.add("/a", 100);
    w.add("/b", 99);
    w.add("/idle", 0);
    let shown = |text: &str| ["/a", "/b"].map(|group| value(text, &one(group)).is_some());
    assert_eq!(shown(&w.text(&export)), [true, false]);
    w.add("/b", 20);
    assert_eq!(shown(&w.text(&export)), [true, false], "119 is no quarter more than 100");
    w.add("/b", 20);
    let text = w.text(&export);
    assert_eq!(shown(&text), [false, true]);
    assert_eq!(value(&text, &one("//other")), Some(139.0));
    assert!(!text.contains("/idle"), "{text}");
}

#[test]
fn of_groups_with_as_much_the_eldest_is_shown() {
    let w = world();
    for path in ["/c", "/b", "/a"] {
        w.add(path, 1);
    }
    let text = w.text(&Export::new("app").top(1, w.requests));
    let shown = ["/c", "/b", "/a"].map(|group| value(&text, &one(group)).is_some());
    assert_eq!(shown, [true, false, false]);
}

/// A group with nothing in any metric is shown only if every group is.
#[test]
fn empty_groups_are_shown_only_by_every_group() {
    let w = world();
    w.add("/idle", 0);
    w.add("/waits", 0);
    w.tree.get("/waits").expect("alive").adjust(w.queued, 1);
    let text = w.text(&Export::new("app"));
    assert!(!text.contains("/idle"), "{text}");
    assert_eq!(value(&text, &one("/waits")), Some(0.0), "it has something of another metric");
    assert!(w.text(&Export::new("app").every_group()).contains("/idle"));
}

#[test]
fn groups_above_those_with_most_are_shown_too() {
    let w = world();
    w.add("/a/b/c", 5);
    w.add("/d", 4);
    let text = w.text(&Export::new("app").top(1, w.tree.schema().metric("requests").expect("one")));
    assert_eq!(value(&text, &one("/a")), Some(0.0));
    // `/a`, `/a/b` and `/a/b/c` are equal; among equals the oldest is shown.
    assert_eq!(value(&text, &one("/a//other")), Some(5.0));
    assert_eq!(value(&text, &one("//other")), Some(4.0));
    let export = Export::new("app").top(1, w.queued);
    w.tree.get("/a/b/c").expect("alive").adjust(w.queued, 3);
    w.tree.get("/a/b").expect("alive").adjust(w.queued, -2);
    let text = w.text(&export);
    assert_eq!(["/a", "/a/b", "/a/b/c"].map(|g| value(&text, &one(g))), [0.0, 0.0, 5.0].map(Some));
}

#[test]
fn groups_are_chosen_by_their_use_of_a_quota() {
    let w = world();
    let hold = |path: &str, n| {
        let group = w.tree.get_or_create(path).expect("room");
        group.try_charge(w.memory, n).expect("no limit")
    };
    let _held = [("/a", 5), ("/b", 70), ("/c", 6)].map(|(path, n)| hold(path, n));
    w.add("/a", 1000);
    let text = w.text(&Export::new("app").top(1, w.memory));
    let of = |group: &str| value(&text, &format!("app_memory_bytes{{group=\"{group}\"}}"));
    assert_eq!(["/", "/a", "/b", "/c"].map(of), [Some(11.0), None, Some(70.0), None]);
}

#[test]
fn without_a_choice_groups_are_bounded() {
    let w = world();
    (0..TOP_DEFAULT + 20).for_each(|n| w.add(&format!("/t{n:03}"), 1 + n as u64));
    let text = w.text(&Export::new("app"));
    let shown = samples(&text).filter(|(series, _)| series.starts_with(REQUESTS)).count();
    assert_eq!(shown, TOP_DEFAULT + 2, "and the root, and its other");
}

#[test]
fn at_full_depth_a_group_stands_for_its_subtree() {
    let w = world();
    let export = Export::new("app").depth(1).subtrees().scrapers(1);
    let mut server = Server::default();
    w.add("/acme/web", 1);
    w.add("/", 1);
    server.scrape(&w.text(&export));
    w.add("/acme/web", 10);
    w.kill("/acme/web");
    w.add("/acme/mail", 5);
    let text = w.text(&export);
    server.scrape(&text);
    assert_eq!((server.of(&one("/acme")), server.sum(REQUESTS)), (15.0, 15.0));
    assert!(!text.contains("/acme/"), "{text}");
    assert_eq!(value(&text, "app_requests_subtree_total{group=\"/\"}"), Some(17.0));
}

#[test]
fn an_export_begins_anew_with_another_tree() {
    let (one_tree, other_tree) = (world(), world());
    let export = Export::new("app");
    one_tree.add("/a", 5);
    assert_eq!(value(&one_tree.text(&export), &one("/a")), Some(5.0));
    other_tree.add("/b", 6);
    let text = other_tree.text(&export);
    assert_eq!((value(&text, &one("/a")), value(&text, &one("/b"))), (None, Some(6.0)));
}

/// The process has more CPU time than all groups together: the rest belongs to no group.
#[test]
fn process_time_exceeds_that_of_all_groups() {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let burn = || (0..200_000u64).fold(0, |sum: u64, n| std::hint::black_box(sum ^ n));
    tree.create("/web").expect("room").run(burn);
    let _ = burn();
    let mut text = String::new();
    Export::new("app").write(&tree, &mut text).expect("a string");
    let process = value(&text, "app_process_cpu_seconds_total");
    let Some(balance) = tree.cpu_balance() else { return };
    let process = process.expect("the schema meters CPU time");
    let web = value(&text, "app_cpu_seconds_total{group=\"/web\"}").expect("it ran");
    assert!(0.0 < web && web < process, "{text}");
    assert!(process <= balance.process_ns as f64 / 1e9, "{process} of {balance:?}");
    assert!(!world().text(&Export::new("app")).contains("process_cpu"), "nobody asked for it");
}

#[test]
#[should_panic(expected = "belongs to the schema of another tree")]
fn a_metric_of_another_tree_is_refused() {
    let (a, b) = (world(), world());
    let _ = a.text(&Export::new("app").top(5, b.requests));
}

/// For two scrapers, increases are those of the tree, whatever groups come and go.
///
/// Any mix of updates, kills, creations and changes of the top groups, with two servers that scrape
/// in turns.
#[test]
fn increases_are_right_for_two_scrapers() {
    let rounds = if cfg!(miri) { 1 } else { 20 };
    for seed in 0..rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let w = world();
        let depth = random.usize(1..5);
        let export = Export::new("app").top(random.usize(1..6), w.requests).depth(depth);
        let mut servers = [false, true].map(|forgets| Server { forgets, ..Server::default() });
        let mut counted = [0; 4];
        let mut began = [None; 2];
        let steps = if cfg!(miri) { 60 } else { 400 };
        for step in 0..steps {
            let path: String =
                (0..random.usize(1..5)).map(|_| ["/a", "/b", "/c"][random.usize(..3)]).collect();
            match random.u8(..10) {
                0 => {
                    if let Some(group) = w.tree.get(&path) {
                        drop(group.kill_subtree().expect("not the root"));
                    }
                }
                1 => {
                    // Its last handle is dropped after the kill, and counts in between.
                    if let Some(group) = w.tree.get(&path) {
                        let killed = group.kill_subtree().expect("not the root");
                        group.add(w.requests, 13);
                        w.refuse(&group, 1);
                        counted[0] += 13;
                        counted[2] += 1;
                        drop(killed);
                    }
                }
                2 => {
                    w.tree.get_or_create(&path).expect("room").record(w.batch, 3);
                    counted[1] += 1;
                }
                3 => {
                    w.refuse(&w.tree.get_or_create(&path).expect("room"), 2);
                    counted[2] += 2;
                }
                4 => {
                    let group = w.tree.get_or_create(&path).expect("room");
                    let up = std::iter::successors(Some(&group), |group| group.parent());
                    // `refuse` has left some limits.
                    up.for_each(|group| _ = group.set_limit(w.memory, None));
                    w.overdraw(&group, random.bool());
                    counted[3] += 1;
                }
                _ => {
                    let n = 1 << random.u32(..10);
                    w.add(&path, n);
                    counted[0] += n;
                }
            }
            if step % 7 == 0 {
                let turn = step / 7 % 2;
                let text = w.text(&export);
                servers[turn].scrape(&text);
                let from = *began[turn].get_or_insert(counted);
                let at = || format!("seed {seed}, step {step}, depth {depth}: {text}");
                let metrics = [REQUESTS, "app_batch_count", REFUSED, OVERDRAFTS];
                let sums = metrics.map(|metric| servers[turn].sum(metric));
                let expected = [0, 1, 2, 3].map(|n: usize| (counted[n] - from[n]) as f64);
                assert_eq!(sums, expected, "{}", at());
                let levels = samples(&text).filter(|(s, _)| s.starts_with("app_queued")).count();
                assert!(levels > 0, "{}", at());
            }
        }
    }
}

/// Increases are those of the tree while threads update it.
///
/// Threads count, are refused, and end groups in which others still count.
#[test]
fn increases_are_right_during_updates_stress() {
    let (threads, steps) = if cfg!(miri) { (2, 40) } else { (3, 3000) };
    let w = world();
    let export = Export::new("app").top(8, w.requests).scrapers(1);
    let mut server = Server::default();
    server.scrape(&w.text(&export));
    let witness = Witness::new();
    let counted = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|seed| {
                let (w, witness) = (&w, &witness);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut counted = [0; 2];
                    for _ in (0..).take_while(|&n| witness.goes_on(n, steps)) {
                        let path = format!("/{}/{}", random.u8(..3), random.u8(..3));
                        // Another thread may have killed the group above it.
                        let Ok(group) = w.tree.get_or_create(&path) else { continue };
                        let killed = (random.u8(..20) == 0).then(|| group.kill());
                        for _ in 0..20 {
                            group.add(w.requests, 3);
                            w.refuse(&group, 1);
                        }
                        counted = [counted[0] + 60, counted[1] + 20];
                        drop(killed);
                    }
                    counted
                })
            })
            .collect();
        let mut last = 0.0;
        while running.iter().any(|thread| !thread.is_finished()) {
            server.scrape(&w.text(&export));
            let before = std::mem::replace(&mut last, server.sum(REQUESTS));
            witness.met(before > 0.0 && last > before);
        }
        let counted = running.into_iter().map(|thread| thread.join().expect("no panic"));
        counted.reduce(|a, b| [a[0] + b[0], a[1] + b[1]]).expect("a thread")
    });
    witness.assert_met();
    server.scrape(&w.text(&export));
    let sums = [REQUESTS, REFUSED].map(|metric| server.sum(metric));
    assert_eq!(sums, counted.map(f64::from));
}
