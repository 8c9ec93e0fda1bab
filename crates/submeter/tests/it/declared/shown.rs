//! Sets that are added to a tree, as seen in what outlives a call: exports, totals, checkpoints.

use std::fs;

use submeter::checkpoint::CheckpointFile;
use submeter::export::{Export, Format};
use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Metrics, Nanoseconds, Schema, Tree,
};

#[derive(Clone, Copy, Metrics)]
#[metrics(prefix = "db_")]
struct Db {
    /// Queries sent
    queries: Counter<Count>,
    /// Rows in memory
    rows: Gauge<Count>,
    /// Time to answer
    #[metric(buckets = Buckets::powers(8, 12))]
    latency: Histogram<Nanoseconds>,
}

#[derive(Clone, Copy, Metrics)]
struct Other {
    /// Bytes read
    read: Counter<Bytes>,
}

fn world() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    (Tree::new(schema.build().expect("valid")).expect("address space"), requests)
}

fn scrape(export: &Export, tree: &Tree) -> String {
    let mut text = String::new();
    export.write(tree, &mut text).expect("a string");
    text
}

/// Returns the value of a sample, or nothing where there is none.
fn sample<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// A set begins at zero for every scraper and then has all its counts.
#[test]
fn a_set_begins_at_zero_for_every_scraper() {
    let (tree, requests) = world();
    let export = Export::new("app").created().subtrees();
    let web = tree.get_or_create("/acme/web").expect("room");
    web.add(requests, 1);
    let first = scrape(&export, &tree);
    assert_eq!(sample(&first, "app_requests_total{group=\"/acme/web\"}"), Some("1"));
    assert!(!first.contains("db_queries"));

    // Times have milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let db: Db = tree.declare().expect("new names");
    let [queries, created, subtree, count, rows] = [
        "app_db_queries_total{group=\"/acme/web\"}",
        "app_db_queries_created{group=\"/acme/web\"}",
        "app_db_queries_subtree_total{group=\"/acme\"}",
        "app_db_latency_seconds_count{group=\"/acme/web\"}",
        "app_db_rows{group=\"/acme/web\"}",
    ];
    let time = |text: &str, name: &str| sample(text, name).map(|n| n.parse::<f64>().expect("s"));
    let requests_created = "app_requests_created{group=\"/acme/web\"}";
    for scrape_number in 0..2 {
        web.add(db.queries, 20);
        web.adjust(db.rows, 1);
        web.record(db.latency, 1000);
        web.add(requests, 1);
        let text = scrape(&export, &tree);
        assert!(text.contains("# TYPE app_db_queries counter\n# HELP app_db_queries Queries sent"));
        assert_eq!(sample(&text, queries), Some("0"), "scrape {scrape_number}: {text}");
        assert_eq!(sample(&text, subtree), Some("0"));
        assert_eq!(sample(&text, count), Some("0"));
        assert_eq!(sample(&text, rows), Some(["1", "2"][scrape_number]), "a level is shown");
        assert!(time(&text, created) > time(&text, requests_created), "{text}");
    }
    // A group that has ended meanwhile, and that no scrape had shown.
    let gone = tree.get_or_create("/acme/gone").expect("room");
    gone.add(db.queries, 5);
    gone.kill().expect("alive");
    let text = scrape(&export, &tree);
    assert_eq!(sample(&text, queries), Some("40"));
    assert_eq!(sample(&text, subtree), Some("45"));
    assert_eq!(sample(&text, count), Some("2"));
    let all: u64 = text
        .lines()
        .filter(|line| line.starts_with("app_db_queries_total{"))
        .map(|line| line.rsplit(' ').next().expect("a value").parse::<u64>().expect("a number"))
        .sum();
    assert_eq!(all, tree.root().sum(db.queries), "each count is in one series: {text}");
    assert_eq!(sample(&text, "app_requests_total{group=\"/acme/web\"}"), Some("3"));
}

#[test]
fn a_set_at_the_first_scrape_is_shown_at_once() {
    let (tree, _) = world();
    let db: Db = tree.declare().expect("new names");
    tree.create("/web").expect("room").add(db.queries, 3);
    let mut text = String::new();
    Export::new("app").write_as(Format::Text, &tree, &mut text).expect("a string");
    assert_eq!(sample(&text, "app_db_queries_total{group=\"/web\"}"), Some("3"), "{text}");
    // Groups chosen by a metric of the set, for which most groups have no words.
    tree.create("/mail").expect("room").add(db.queries, 2);
    let text = scrape(&Export::new("app").top(1, db.queries), &tree);
    assert_eq!(sample(&text, "app_db_queries_total{group=\"/web\"}"), Some("3"), "{text}");
    assert_eq!(sample(&text, "app_db_queries_total{group=\"/mail\"}"), None, "{text}");
}

/// Totals include metrics that were declared later; former processes have none of them.
#[test]
fn totals_have_what_was_declared_later() {
    let directory = std::env::temp_dir().join(format!("submeter-{}-sets", std::process::id()));
    fs::create_dir_all(&directory).expect("writable");
    let path = directory.join("totals");

    // A process without the set.
    let (tree, requests) = world();
    tree.create("/web").expect("room").add(requests, 3);
    let mut file = CheckpointFile::open(&path).expect("free");
    assert!(tree.restore(&mut file).expect("no file yet").is_none());
    tree.checkpoint(&mut file).expect("saved");
    drop((tree, file));

    // A process that restores that, and declares the set in between.
    let (tree, requests) = world();
    let web = tree.create("/web").expect("room");
    let other: Other = tree.declare().expect("a new name");
    web.add(other.read, 7);
    let mut file = CheckpointFile::open(&path).expect("free");
    assert!(tree.restore(&mut file).expect("of fewer metrics").is_some());
    let db: Db = tree.declare().expect("new names");
    web.add(db.queries, 5);
    web.record(db.latency, 300);
    web.inc(requests);
    let totals = tree.totals();
    let counters = |at: usize| {
        let groups = totals[at].groups.iter();
        let web = groups.into_iter().find(|group| &*group.path == "/web").expect("counted");
        web.counters.clone()
    };
    assert_eq!((counters(0), counters(1)), (vec![1, 7, 5], vec![3, 0, 0]));
    assert_eq!(web.sum(requests), 4);
    tree.checkpoint(&mut file).expect("saved");
    drop((tree, web, file));

    // A process that has not declared it yet.
    let (tree, requests) = world();
    let mut file = CheckpointFile::open(&path).expect("free");
    let error = tree.restore(&mut file).expect_err("a metric that is not declared yet");
    assert!(error.is_schema());
    let text = error.to_string();
    assert!(
        text.contains("\"read\", which the tree lacks: before restoring, declare it"),
        "{text}"
    );
    assert_eq!(tree.snapshot().groups().len(), 1, "nothing was restored");
    // In another order: only the names matter.
    let db: Db = tree.declare().expect("new names");
    let other: Other = tree.declare().expect("a new name");
    assert!(tree.restore(&mut file).expect("all is declared").is_some());
    let snapshot = tree.snapshot();
    let web = snapshot.get("/web").expect("restored");
    assert_eq!((web.counter(requests), web.counter(other.read)), (4, 7));
    assert_eq!((web.counter(db.queries), web.histogram(db.latency).count()), (5, 1));
    let totals = tree.totals();
    assert_eq!(totals.len(), 3);
    assert_eq!(totals[0].groups.last().expect("/web").counters, [0, 0, 0], "all is of others");
    assert_eq!(totals[1].groups.last().expect("/web").counters, [1, 5, 7]);
    tree.checkpoint_last(file).expect("saved");
    fs::remove_dir_all(directory).expect("its own");
}
