//! Tests of the rows that measurements become.

use super::*;

fn reading(measure: &'static str, unit: &'static str, value: f64) -> Reading {
    Reading::of(unit, vec![value]).with("measure", measure)
}

/// Rows of one kind follow each other, whichever was read first.
#[test]
fn rows_of_one_kind_follow_each_other() {
    let mut record = Record::default();
    let group = record.group(&Params::from([("workload", Param::word("w"))]), vec!["a", "b"]);
    let quantile = |name, value| reading("hold", "us", value).with("quantile", name).largest();
    let rate = |value| reading("rate", "updates/s", value);
    // The second variant has quantiles that the first lacks.
    record.add(group, "a", vec![rate(3.0)], false);
    record.add(group, "a", vec![rate(1.0)], false);
    record.add(group, "a", vec![rate(2.0)], false);
    record.add(group, "a", vec![rate(99.0)], true);
    record.add(group, "b", vec![quantile("p50", 1.0), rate(7.0), quantile("max", 5.0)], true);
    record.add(group, "b", vec![quantile("max", 4.0)], true);
    record.add(group, "b", vec![reading("flush", "us", 8.0), quantile("p99", 6.0)], true);
    let (rows, poor) = record.rows("rstat");
    let found: Vec<(&str, &str, f64, usize)> =
        rows.iter().map(|row| (&*row.unit, &*row.variant, row.value, row.samples.len())).collect();
    assert_eq!(
        found,
        [
            ("updates/s", "a", 2.0, 3),
            ("updates/s", "b", 7.0, 1),
            ("us", "b", 1.0, 1),
            ("us", "b", 5.0, 2),
            ("us", "b", 6.0, 1),
            ("us", "b", 8.0, 1),
        ]
    );
    assert_eq!(poor, [1, 2, 3, 4, 5]);
    let words: Vec<String> = rows[3].params.0.iter().map(|(n, v)| format!("{n} {v}")).collect();
    assert_eq!(words, ["workload w", "measure hold", "quantile max"]);
}

#[test]
fn counts_are_summed() {
    let mut record = Record::default();
    let group = record.group(&Params::default(), vec!["a"]);
    for count in [1.0, 2.0, 4.0] {
        record.add(group, "a", vec![reading("preemptions", "count", count).summed()], false);
    }
    assert_eq!(record.rows("rstat").0[0].value, 7.0);
}

#[test]
fn disturbed_samples_show_only_without_others() {
    let mut record = Record::default();
    let group =
        record.group(&Params::from([("part", Param::word("p"))]), vec!["a", "never", "c", "poor"]);
    let median = |value| Reading::of("ns", vec![value]);
    for value in [1.0, 2.0, 6.0] {
        record.add(group, "a", vec![median(value)], false);
        record.add(group, "c", vec![median(value).with("measure", "sum").summed()], false);
    }
    record.add(group, "a", vec![median(1e9)], true);
    record.add(group, "c", vec![median(1e9).with("measure", "sum").summed()], true);
    record.add(group, "poor", vec![median(7.0)], true);
    let (rows, poor) = record.rows("perf");
    let found: Vec<_> = rows.iter().map(|row| (&*row.variant, row.value)).collect();
    assert_eq!(found, [("a", 2.0), ("poor", 7.0), ("c", 9.0)]);
    assert_eq!(rows[0].samples, [1.0, 2.0, 6.0]);
    assert_eq!(poor, [1]);
}

/// A reading may be of another variant and replace parameters of its cell.
#[test]
fn a_reading_may_replace_its_cells_parameters() {
    let mut record = Record::default();
    let params =
        Params::from([("measure", Param::word("throughput")), ("pipeline", Param::number(8))]);
    let group = record.group(&params, vec!["a"]);
    assert_eq!(record.group(&params, vec!["a"]), group, "the same cells once more");
    let readings = vec![
        Reading::of("requests/s", vec![5.0]),
        reading("latency", "us", 3.0).with("quantile", "p50").of_variant("b"),
    ];
    record.add(group, "a", readings, false);
    let (rows, _) = record.rows("end_to_end");
    let words = |row: &Row| -> Vec<String> {
        row.params.0.iter().map(|(name, value)| format!("{name} {value}")).collect()
    };
    assert_eq!(
        (&*rows[0].variant, words(&rows[0])),
        ("a", vec!["measure throughput".into(), "pipeline 8".into()])
    );
    let latency = ["measure latency", "pipeline 8", "quantile p50"].map(String::from);
    assert_eq!((&*rows[1].variant, words(&rows[1])), ("b", latency.to_vec()));
}
