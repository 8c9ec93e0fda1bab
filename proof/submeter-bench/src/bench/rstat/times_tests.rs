//! Tests of the readings made from times.

use super::*;
use crate::row::Param;

#[test]
fn buckets_are_the_document_s() {
    let mut times = Times::new();
    let edges = [0, 999, 1000, 4999, 5000, 29_999, 30_000, 89_999, 90_000, u64::MAX];
    edges.iter().for_each(|&ns| times.add(ns));
    let mut readings = Vec::new();
    times.push_readings("wait", Unit::Microseconds, &mut readings);
    let counts: Vec<(Param, f64)> = readings
        .iter()
        .filter(|r| r.unit == "count")
        .map(|r| (r.params.0.last().expect("named").1.clone(), r.values[0]))
        .collect();
    assert_eq!(counts.len(), BUCKETS.len());
    for (bucket, count) in counts {
        let expected = match bucket.as_str() {
            "0-1" | "1-5" | "90-" => 2.0,
            "5-10" | "25-30" | "30-40" | "80-90" => 1.0,
            _ => 0.0,
        };
        assert_eq!(count, expected, "{bucket}");
    }
    assert_eq!(times.len(), edges.len() as u64);
}

/// Quantiles are of short and long times together.
#[test]
fn quantiles_are_of_short_and_long_times() {
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
    times.push_tail("wait", &mut readings);
    assert_eq!(readings[0].values, [99.0], "percent below a microsecond");
    let busy_s = (990.0 * 20.0 + 5_500_000.0) / 1e9;
    assert_eq!(readings[1].values, [10.0 / busy_s], "over it, by the second");
}

#[test]
fn without_times_there_are_no_quantiles() {
    let mut readings = Vec::new();
    Times::new().push_readings("hold", Unit::Microseconds, &mut readings);
    assert_eq!(readings.len(), BUCKETS.len());
    assert!(readings.iter().all(|reading| reading.values == [0.0]));
}
