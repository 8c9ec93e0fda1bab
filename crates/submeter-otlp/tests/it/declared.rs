//! Sets of metrics that are added between two exports.

use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use submeter::{
    Buckets, Count, Counter, Gauge, Histogram, Metrics, Nanoseconds, SchemaBuilder, Tree,
};
use submeter_otlp::{Exporter, Temporality};

use super::receiver::{Receiver, Reply, metrics};
use super::sent::{map, numbers};
use super::{to, tree};

struct Db {
    queries: Counter<Count>,
    rows: Gauge<Count>,
    latency: Histogram<Nanoseconds>,
}

impl Metrics for Db {
    fn declare(schema: &mut SchemaBuilder) -> Db {
        Db {
            queries: schema.counter("db_queries", "Queries sent"),
            rows: schema.gauge("db_rows", "Rows in memory"),
            latency: schema.histogram("db_latency", "Answers", Buckets::powers(8, 12)),
        }
    }
}

fn values(metrics: &[Metric]) -> u64 {
    let Some(metric) = metrics.iter().find(|metric| metric.name == "db_latency") else { return 0 };
    match metric.data.as_ref().expect("data") {
        Data::Histogram(histogram) => histogram.data_points.iter().map(|point| point.count).sum(),
        Data::ExponentialHistogram(histogram) => {
            histogram.data_points.iter().map(|point| point.count).sum()
        }
        other => panic!("a histogram, not {other:?}"),
    }
}

/// Exports before the set exists, when it has no values, and twice when it has.
fn story(temporality: Temporality, requests_sent: [&[(&str, i64)]; 3], queries_sent: [i64; 2]) {
    let mut key = None;
    let tree: Tree = tree(|schema| key = Some(schema.counter::<Count>("requests", "Requests")));
    let requests = key.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter: Exporter = to(&receiver, &tree).temporality(temporality).start().expect("valid");
    let (idle, web) = (tree.create("/idle").expect("room"), tree.create("/web").expect("room"));
    idle.add(requests, 1);
    web.add(requests, 2);
    exporter.export().expect("accepted");

    let db: Db = tree.declare().expect("new names");
    web.add(requests, 3);
    exporter.export().expect("accepted");
    web.add(db.queries, 5);
    web.adjust(db.rows, -2);
    web.record(db.latency, 300);
    web.add(requests, 1);
    exporter.export().expect("accepted");
    web.add(db.queries, 1);
    web.adjust(db.rows, 2);
    exporter.export().expect("accepted");

    let sent: Vec<_> = receiver.requests().iter().map(|all| metrics(&all.body)).collect();
    assert_eq!(sent.len(), 4);
    for (sent, expected) in sent.iter().zip(requests_sent) {
        let expected = expected.iter().map(|&(path, n)| (path.to_owned(), n)).collect();
        assert_eq!(numbers(sent, "requests"), expected);
    }
    for sent in &sent[..2] {
        assert!(numbers(sent, "db_queries").is_empty() && values(sent) == 0);
    }
    assert_eq!(numbers(&sent[2], "db_queries"), map([("/web", queries_sent[0])]));
    assert_eq!((numbers(&sent[2], "db_rows"), values(&sent[2])), (map([("/web", -2)]), 1));
    assert_eq!(numbers(&sent[3], "db_queries"), map([("/web", queries_sent[1])]));
    assert_eq!(numbers(&sent[3], "db_rows"), map([("/web", 0)]));
}

#[test]
fn cumulative_sums_begin_with_the_set() {
    let all = [&[("/idle", 1), ("/web", 2)][..], &[("/idle", 1), ("/web", 5)]];
    story(Temporality::Cumulative, [all[0], all[1], &[("/idle", 1), ("/web", 6)]], [5, 6]);
}

#[test]
fn differences_begin_with_the_set() {
    let all = [&[("/idle", 1), ("/web", 2)][..], &[("/web", 3)], &[("/web", 1)]];
    story(Temporality::Delta, all, [5, 1]);
}
