//! Tests of what becomes of measurements.

use super::*;

#[test]
fn buckets_are_the_document_s() {
    let mut times = Times::new();
    let edges = [0, 999, 1000, 4999, 5000, 29_999, 30_000, 89_999, 90_000, u64::MAX];
    edges.iter().for_each(|&ns| times.add(ns));
    let mut readings = Vec::new();
    times.tell("wait", Unit::Microseconds, &mut readings);
    let counts: Vec<(Param, f64)> = readings
        .iter()
        .filter(|r| r.unit == "count")
        .map(|r| (r.extra.expect("named").1, r.value))
        .collect();
    assert_eq!(counts.len(), BUCKETS.len());
    for (bucket, count) in counts {
        let expected = match bucket {
            Param::Word("0-1" | "1-5" | "90-") => 2.0,
            Param::Word("5-10" | "25-30" | "30-40" | "80-90") => 1.0,
            _ => 0.0,
        };
        assert_eq!(count, expected, "{bucket}");
    }
    assert_eq!(times.len(), edges.len() as u64);
}

#[test]
fn quantiles_are_of_short_and_long_times_together() {
    let mut times = Times::new();
    let mut second = Times::new();
    (1..=990).for_each(|_| times.add(20));
    (1..=10).for_each(|n| second.add(n * 100_000));
    times.merge(&second);
    for (part, ns) in [(0.0, 20), (0.5, 20), (0.99, 20), (0.995, 500_000), (1.0, 1_000_000)] {
        let found = times.quantile_ns(part);
        assert!(found.abs_diff(ns) <= ns / 100, "{part}: {found}, not {ns}");
    }
    let mut readings = Vec::new();
    times.tell_tail("wait", &mut readings);
    assert_eq!(readings[0].value, 99.0, "percent below a microsecond");
    let busy_s = (990.0 * 20.0 + 5_500_000.0) / 1e9;
    assert_eq!(readings[1].value, 10.0 / busy_s, "over it, by the second");
}

#[test]
fn no_times_have_no_quantiles() {
    let mut readings = Vec::new();
    Times::new().tell("hold", Unit::Microseconds, &mut readings);
    assert_eq!(readings.len(), BUCKETS.len());
    assert!(readings.iter().all(|reading| reading.value == 0.0));
}

#[test]
fn rows_of_one_kind_follow_each_other_whoever_was_read_first() {
    let mut record = Record::default();
    let group = record.group(vec![("workload", Param::Word("w"))], vec!["a", "b"]);
    let quantile = |name, value| Reading {
        extra: Some(("quantile", Param::Word(name))),
        combine: Combine::Max,
        ..Reading::of("hold", "us", value)
    };
    let rate = |value| Reading::of("rate", "updates/s", value);
    // The second variant has quantiles that the first lacks.
    record.add(group, "a", vec![rate(3.0)], false);
    record.add(group, "a", vec![rate(1.0)], false);
    record.add(group, "a", vec![rate(2.0)], false);
    record.add(group, "a", vec![rate(99.0)], true);
    record.add(group, "b", vec![quantile("p50", 1.0), rate(7.0), quantile("max", 5.0)], true);
    record.add(group, "b", vec![quantile("max", 4.0)], true);
    let rows = record.rows("rstat");
    let found: Vec<(&str, &str, f64, usize)> =
        rows.iter().map(|row| (row.unit, row.variant, row.value, row.samples.len())).collect();
    assert_eq!(
        found,
        [
            ("updates/s", "a", 2.0, 3),
            ("updates/s", "b", 7.0, 1),
            ("us", "b", 1.0, 1),
            ("us", "b", 5.0, 2),
        ]
    );
    let words: Vec<String> = rows[3].params.iter().map(|(n, v)| format!("{n} {v}")).collect();
    assert_eq!(words, ["workload w", "measure hold", "quantile max"]);
}

#[test]
fn counts_are_summed() {
    let mut record = Record::default();
    let group = record.group(Vec::new(), vec!["a"]);
    for count in [1.0, 2.0, 4.0] {
        record.add(group, "a", vec![Reading::of("preemptions", "count", count).summed()], false);
    }
    assert_eq!(record.rows("rstat")[0].value, 7.0);
}
