//! Sums are exact, whichever groups are created and ended, and whatever the receiver does.

use std::collections::HashMap;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, NumberDataPoint};
use submeter::Count;
use submeter::checkpoint::CheckpointFile;
use submeter_otlp::Temporality;

use super::receiver::{Receiver, Reply, group, status};
use super::{to, tree, with_gauge, with_histogram};

/// Adds up a counter, or the values of a histogram: every delta, or the last of each series.
pub(super) fn total(requests: &[Vec<Metric>], name: &str) -> u64 {
    let mut series: HashMap<(String, u64), u64> = HashMap::new();
    let mut sum = 0;
    for metric in requests.iter().flatten().filter(|metric| metric.name == name) {
        let int = |point: &NumberDataPoint| match point.value {
            Some(Value::AsInt(n)) => n.cast_unsigned(),
            other => panic!("an integer, not {other:?}"),
        };
        let (temporality, points): (_, Vec<_>) = match metric.data.as_ref().expect("data") {
            Data::Sum(sum) => (
                sum.aggregation_temporality,
                sum.data_points
                    .iter()
                    .map(|p| (group(&p.attributes), p.start_time_unix_nano, int(p)))
                    .collect(),
            ),
            Data::Histogram(histogram) => (
                histogram.aggregation_temporality,
                histogram
                    .data_points
                    .iter()
                    .map(|p| {
                        (group(&p.attributes), p.start_time_unix_nano, p.bucket_counts.iter().sum())
                    })
                    .collect(),
            ),
            other => panic!("a sum, not {other:?}"),
        };
        for (group, start, n) in points {
            if temporality == i32::from(AggregationTemporality::Delta) {
                sum += n;
            } else {
                let before = series.insert((group.clone(), start), n).unwrap_or(0);
                assert!(before <= n, "{group}: {name} fell from {before} to {n}");
            }
        }
    }
    sum + series.values().sum::<u64>()
}

/// Groups of two levels are created, killed and created again at random, with random answers.
fn random(temporality: Temporality, request_max: usize, seed: u64) {
    let (tree, n, size) = with_histogram(4);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut answers = chance.fork();
    let mut has_it = false;
    let receiver = Receiver::start(move |_| {
        let reply = match answers.u8(..8) {
            0 => Reply::AcceptAndBreak,
            1 => status("503 Busy"),
            // A receiver that refuses what it already has cannot be told the truth.
            2 if !has_it => status("400 Bad Request"),
            _ => Reply::Accept,
        };
        has_it = matches!((&reply, has_it), (Reply::AcceptAndBreak, _) | (Reply::Answer(_), true));
        reply
    });
    let exporter = to(&receiver, &tree).temporality(temporality).request_max(request_max);
    let exporter = exporter.start().expect("valid");
    let mut counted = 0;
    for _ in 0..300 {
        let parent = format!("/{}", chance.u8(..2));
        let child = format!("{parent}/{}", chance.u8(..2));
        match chance.u8(..8) {
            0 => drop(tree.get(&child).map(|group| group.kill())),
            1 => drop(tree.get(&parent).map(|group| group.kill_subtree())),
            2 => drop(exporter.export()),
            _ => {
                let path = [&parent, &child][chance.usize(..2)];
                let group = tree.get_or_create(path).expect("room");
                let amount = chance.u64(1..9);
                group.add(n, amount);
                group.record_many(size, chance.u64(..40), amount);
                counted += amount;
            }
        }
    }
    let accepted = (0..1000).any(|_| exporter.export().is_ok());
    assert!(accepted, "seed {seed}: {:?}", exporter.stats());
    let taken = receiver.taken();
    assert_eq!((total(&taken, "n"), total(&taken, "size")), (counted, counted), "seed {seed}");
    let stats = exporter.stats();
    assert!(stats.retries > 0 && stats.refused > 0, "seed {seed}: {stats:?}");
}

#[test]
fn deltas_add_up_to_what_the_tree_counted() {
    (0..20).for_each(|seed| random(Temporality::Delta, usize::MAX, seed));
}

#[test]
fn series_add_up_to_the_tree_and_never_fall() {
    (0..20).for_each(|seed| random(Temporality::Cumulative, usize::MAX, seed));
}

/// Sums stay exact if some parts of an export are accepted and others refused.
#[test]
fn sums_are_exact_where_exports_are_divided() {
    for temporality in [Temporality::Delta, Temporality::Cumulative] {
        (0..6).for_each(|seed| random(temporality, 700, seed));
    }
}

/// No request is larger than receivers accept, unless a single group is.
#[test]
fn no_request_is_too_large_unless_a_group_is() {
    let mut keys = None;
    let tree = tree(|schema| keys = Some(schema.counter::<Count>("n", "")));
    let n = keys.expect("declared");
    for tenant in 0..1000 {
        tree.create(&format!("/{tenant}")).expect("room").add(n, 1);
    }
    for (most, requests) in [(usize::MAX, 1..2), (20_000, 2..20), (1, 1000..1001)] {
        let receiver = Receiver::start(|_| Reply::Accept);
        let exporter = to(&receiver, &tree).request_max(most).start().expect("valid");
        exporter.export().expect("accepted");
        let taken = receiver.requests();
        assert!(requests.contains(&taken.len()), "{most}: {} requests", taken.len());
        if most > 1 {
            let largest = taken.iter().map(|request| request.body.len()).max();
            assert!(largest <= Some(most), "{most}: {largest:?}");
        }
        assert_eq!(total(&receiver.taken(), "n"), 1000, "{most}");
    }
}

/// Restored counts are sent only by the process that counted them.
#[test]
fn restored_counts_are_not_sent_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("totals");
    for temporality in [Temporality::Delta, Temporality::Cumulative] {
        let _ = std::fs::remove_file(&path);
        let receiver = Receiver::start(|_| Reply::Accept);
        for _ in 0..3 {
            let (tree, n, size) = with_histogram(4);
            let mut file = CheckpointFile::open(&path).expect("free");
            tree.restore(&mut file).expect("whole");
            let group = tree.get_or_create("/acme/web").expect("room");
            group.add(n, 5);
            group.record_many(size, 20, 5);
            let exporter = to(&receiver, &tree).temporality(temporality).start().expect("valid");
            exporter.export().expect("accepted");
            // Its parent keeps what it counted, and what was restored to it.
            group.kill().expect("no children");
            exporter.export().expect("accepted");
            tree.checkpoint(&mut file).expect("room");
        }
        let taken = receiver.taken();
        assert_eq!((total(&taken, "n"), total(&taken, "size")), (15, 15), "{temporality:?}");
    }
}

/// A level's final value is sent again if its part was refused.
#[test]
fn the_end_of_a_level_is_sent_again_if_refused() {
    let (tree, n, open) = with_gauge();
    let [first, second] = ["/a", "/b"].map(|path| tree.create(path).expect("room"));
    // Two requests, then two of which the second is refused.
    let receiver = Receiver::start(|request| match request {
        3 => status("400 Bad Request"),
        _ => Reply::Accept,
    });
    let exporter = to(&receiver, &tree).temporality(Temporality::Delta).request_max(1);
    let exporter = exporter.start().expect("valid");
    first.add(n, 1);
    second.set(open, 5);
    exporter.export().expect("accepted");
    first.add(n, 1);
    second.set(open, 0);
    exporter.export().expect_err("one part is refused");
    exporter.export().expect("accepted");
    let points = |metric: &Metric| match metric.data.as_ref() {
        Some(Data::Sum(sum)) if metric.name == "open" => sum.data_points.clone(),
        _ => Vec::new(),
    };
    let sent = receiver.taken();
    let sent: Vec<_> = sent.iter().flatten().flat_map(points).map(|point| point.value).collect();
    assert_eq!(sent, [Some(Value::AsInt(5)), Some(Value::AsInt(0))]);
}
