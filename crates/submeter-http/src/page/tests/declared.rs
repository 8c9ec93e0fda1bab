//! Sets of metrics that are added while the program is shown.

use std::time::{Duration, Instant};

use serde_json::Value;
use submeter::{Buckets, Count, Counter, Histogram, Metrics, Nanoseconds, SchemaBuilder};

use super::super::views::{View, Views};
use super::stream::Events;
use super::{PATIENCE, World};

/// The metrics of a library.
struct Db {
    queries: Counter<Count>,
    latency: Histogram<Nanoseconds>,
}

impl Metrics for Db {
    fn declare(schema: &mut SchemaBuilder) -> Db {
        let queries = schema.counter("db_queries", "Queries sent");
        Db { queries, latency: schema.histogram("db_latency", "Answers", Buckets::LATENCY_NS) }
    }
}

fn use_some(world: &World, db: &Db) {
    let web = world.tenant("/acme/web");
    web.add(db.queries, 5);
    web.record(db.latency, 1000);
}

fn keys(views: &Value) -> Vec<&str> {
    let views = views.as_array().expect("views");
    views.iter().map(|view| view["key"].as_str().expect("a key")).collect()
}

/// A viewer is sent everything again, and then the changes.
#[test]
fn who_watches_is_sent_everything_anew() {
    let world = World::start();
    world.jobs("/acme/web", 1);
    let mut events = Events::join(&world);
    let (name, first) = events.next().expect("an event");
    assert_eq!(name, "full");
    let db: Db = world.tree().declare().expect("new names");
    let full = events.find(|name, event| (name == "full").then(|| event.clone()));
    assert_eq!(full["schema"].as_array().expect("metrics").len(), 7);
    let before = keys(&first["views"]).len();
    assert_eq!(keys(&full["views"])[..before], keys(&first["views"]), "the others stay");
    assert_eq!(keys(&full["views"])[before..], ["db_queries_per_s", "db_latency_p99"]);
    let columns = full["groups"][0][3].as_array().expect("figures");
    assert_eq!(columns.len(), before + 2, "a figure for each view");

    use_some(&world, &db);
    let rate = events.find(|name, tick| {
        assert_eq!(name, "tick", "once is enough");
        let root = tick["rows"].as_array()?.iter().find(|row| row[0] == full["groups"][0][0])?;
        root[1][before].as_f64().filter(|rate| *rate > 0.0)
    });
    assert!(rate > 0.0);
}

#[test]
fn every_answer_has_what_was_added() {
    let world = World::start();
    world.jobs("/acme/web", 1);
    let db: Db = world.tree().declare().expect("new names");
    use_some(&world, &db);
    // The schema is current, although the rates are of a sample that may be older than the set.
    let tree = world.json("/api/tree");
    assert_eq!(tree["schema"][5]["name"], "db_queries");
    assert_eq!(tree["groups"][2]["values"]["db_queries"], 5);
    let totals = world.json("/api/totals");
    assert_eq!(totals["units"]["db_queries"], "count");
    assert_eq!(totals["readings"][0]["groups"][2]["totals"]["db_queries"], 5);
    let metrics = world.get("/metrics").body;
    assert!(metrics.contains("program_db_queries_total{group=\"/acme/web\"} 5\n"), "{metrics}");
    // As of the last sample, which may be older than the group, the set or its use.
    let start = Instant::now();
    let detail = loop {
        let answer = world.request("GET", "/api/group?path=/acme/web");
        let detail: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        if detail["group"]["values"]["db_queries"] == 5 {
            break detail;
        }
        assert!(start.elapsed() < PATIENCE, "no sample has what was used: {}", answer.body);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(detail["histograms"]["db_latency"]["total"].is_array(), "{detail}");
    assert!(detail["history"]["series"].get("db_queries_per_s").is_some(), "{detail}");
}

#[test]
fn a_program_with_views_of_its_own_keeps_them() {
    let mut jobs = None;
    let world = World::with(|shown| {
        jobs = shown.tree.schema().metric("jobs").cloned();
        shown.views(Views::new(Vec::<View>::new()))
    });
    assert_eq!(jobs.expect("declared").name(), "jobs");
    let mut events = Events::join(&world);
    events.next().expect("an event");
    let _: Db = world.tree().declare().expect("new names");
    let full = events.find(|name, event| (name == "full").then(|| event.clone()));
    assert_eq!(full["schema"].as_array().expect("metrics").len(), 7);
    assert!(keys(&full["views"]).is_empty());
}
