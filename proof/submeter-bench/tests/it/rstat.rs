//! `submeter-bench rstat`.

use std::collections::{BTreeMap, BTreeSet};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;
use submeter_program::{TempFile, text};

use super::BENCH;

const GROUPS: [&str; 5] = ["/", "/a", "/a/b", "/c", "/a/b/d"];
const METRICS: [&str; 3] = ["state.1", "event.2", "lruvec.3"];
const CPUS: usize = 3;
const UPDATES: u32 = 5_000;
/// How often the trace is replayed after the warm-up.
const ROUNDS: &str = "2";

/// One record: CPU, kind, group, metric, value.
type Record = (u8, u8, u8, u8, i32);

/// Random updates by all CPUs, with an occasional flush of a subtree.
fn records() -> Vec<Record> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut roll = |sides: usize| rng.usize(..sides) as u8;
    let mut records = Vec::new();
    for n in 0..UPDATES {
        let (cpu, group) = (roll(CPUS), roll(GROUPS.len()));
        if n % 250 == 249 {
            for flushed in 0..CPUS as u8 {
                records.extend([(cpu, 1, group, flushed, 0), (cpu, 2, group, flushed, 0)]);
            }
        } else {
            let (metric, value) = (roll(METRICS.len()), i32::from(roll(41)) - 20);
            records.push((cpu, 0, group, metric, value));
        }
    }
    records
}

/// The content of a recording's file.
fn recording(records: &[Record]) -> Vec<u8> {
    let (groups, metrics, count) = (GROUPS.to_vec(), METRICS.to_vec(), records.len());
    let header = serde_json::json!({
        "format": "submeter-trace-1", "source": "a test", "groups": groups, "metrics": metrics, "records": count,
    });
    let header = header.to_string();
    let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    for &(cpu, kind, group, metric, value) in records {
        bytes.extend(100_u32.to_le_bytes());
        bytes.extend([cpu, kind, group, metric]);
        bytes.extend(value.to_le_bytes());
    }
    compress_to_vec(&bytes[..], CompressionLevel::Fastest)
}

fn file(name: &str, bytes: &[u8]) -> TempFile {
    let file = TempFile::new(name, "");
    std::fs::write(file.path(), bytes).expect("the temporary directory is writable");
    file
}

/// Returns totals including descendants, found by path prefix.
fn totals(records: &[Record]) -> BTreeMap<(String, String), i64> {
    let mut totals = BTreeMap::new();
    for group in GROUPS {
        for (metric, name) in METRICS.iter().enumerate() {
            let below = |path: &str| {
                path == group || path.starts_with(&format!("{}/", group.trim_end_matches('/')))
            };
            let of = |record: &&Record| {
                record.1 == 0
                    && usize::from(record.3) == metric
                    && below(GROUPS[usize::from(record.2)])
            };
            let total = records.iter().filter(of).map(|record| i64::from(record.4)).sum();
            totals.insert((group.to_owned(), (*name).to_owned()), total);
        }
    }
    totals
}

/// The values of a parameter, over some rows.
fn values<'a>(rows: &[&'a Value], name: &str) -> BTreeSet<&'a str> {
    rows.iter().filter_map(|row| row["params"][name].as_str()).collect()
}

fn of<'a>(rows: &[&'a Value], name: &str, value: &str) -> Vec<&'a Value> {
    rows.iter().copied().filter(|row| row["params"][name] == value).collect()
}

#[test]
fn a_trace_is_replayed_measured_and_totalled() {
    let records = records();
    let trace = file("rstat.zst", &recording(&records));
    let (out_csv, out_json) = (TempFile::new("rstat.csv", ""), TempFile::new("rstat.json", ""));
    let args = ["rstat", "--quick", "--trace", trace.path(), "--totals", out_csv.path()];
    let output = BENCH.run(&[&args[..], &["--rounds", ROUNDS, "--json", out_json.path()]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "", "no progress without a terminal");
    for part in ["workload trace", "workload update", "patch_1_2_3", "list_head", "0-1"] {
        assert!(out.contains(part), "{part} in {out}");
    }

    let csv = std::fs::read_to_string(out_csv.path()).expect("written");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("group,metric,total"));
    let found: BTreeMap<(String, String), i64> = lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            ((cells[0].to_owned(), cells[1].to_owned()), cells[2].parse().expect("a number"))
        })
        .collect();
    assert_eq!(found, totals(&records));

    let json = std::fs::read_to_string(out_json.path()).expect("written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let rows: Vec<&Value> = json["rows"].as_array().expect("a list").iter().collect();
    are_what_is_documented(&rows);
}

fn are_what_is_documented(rows: &[&Value]) {
    let mut seen = BTreeSet::new();
    for row in rows {
        assert_eq!(row["table"], "rstat");
        let samples = row["samples"].as_array().expect("a list");
        assert!(!samples.is_empty() && samples.iter().all(Value::is_number), "{row}");
        assert!(row["value"].is_number(), "{row}");
        let cell = format!("{}{}", row["params"], row["variant"]);
        assert!(seen.insert(cell), "a cell is measured once: {row}");
    }
    let trace = of(rows, "workload", "trace");
    let all = [
        "before",
        "patch_1",
        "patch_1_2",
        "patch_1_2_3",
        "list_head",
        "walk_up",
        "submeter",
        "control",
        "barrier",
    ];
    let rounds: f64 = ROUNDS.parse().expect("a number");
    let flushes_replayed = 20.0 * rounds;
    for measure in ["hold", "wait"] {
        let measured = of(&trace, "measure", measure);
        for variant in all {
            let counts: Vec<f64> = measured
                .iter()
                .filter(|row| row["variant"] == variant && row["unit"] == "count")
                .map(|row| row["value"].as_f64().expect("a number"))
                .collect();
            assert_eq!(counts.len(), 14, "{measure} of {variant}");
            let count: f64 = counts.iter().sum();
            match (measure, variant) {
                // Each round with all updates.
                ("wait", _) => assert_eq!(count, rounds * (f64::from(UPDATES) - 20.0), "{variant}"),
                (_, "walk_up" | "submeter" | "control" | "barrier") => assert_eq!(count, 0.0),
                // One per CPU's list, and there are no more lists than threads.
                _ => assert!((flushes_replayed..=flushes_replayed * CPUS as f64).contains(&count)),
            }
        }
        assert_eq!(values(&measured, "bucket_us").len(), 14);
        assert!(values(&measured, "quantile").is_superset(&["p50", "p99", "max"].into()));
    }
    for (workload, measure, unit) in [
        ("trace", "rate", "updates/s"),
        ("trace", "update", "ns"),
        ("trace", "flush_per_node", "ns"),
        ("trace", "nodes_per_flush", "nodes"),
        ("update", "update", "ns"),
        ("flush", "flush_per_node", "ns"),
        ("marks", "bytes_per_group_and_cpu", "bytes"),
        ("idle", "bytes_per_group", "bytes"),
    ] {
        let rows = of(&of(rows, "workload", workload), "measure", measure);
        let ours = if workload == "update" { "submeter_group" } else { "submeter" };
        assert!(rows.iter().any(|row| row["variant"] == ours), "{workload} {measure}");
        assert!(rows.iter().all(|row| row["unit"] == unit), "{workload} {measure}");
    }
    let updates = of(rows, "workload", "update");
    assert!(updates.iter().any(|row| row["variant"] == "rseq_add"));
    let clean = of(rows, "workload", "flush");
    assert_eq!(clean.iter().filter(|row| row["params"]["clean_groups"] == 10_000).count(), 1);
}

#[test]
fn bad_input_is_one_line() {
    let good = recording(&records());
    let cut = file("rstat-cut.zst", &good[..good.len() / 2]);
    let plain = file("rstat-plain", b"not compressed at all");
    let wrong = file("rstat-wrong.zst", &recording(&[(0, 0, 9, 0, 1)]));
    let foreign = compress_to_vec(&b"\x02\0\0\0{}"[..], CompressionLevel::Fastest);
    let foreign = file("rstat-foreign.zst", &foreign);
    let trace = |path| ["rstat", "--quick", "--trace", path];
    BENCH.refuses(&trace("/no/such.zst"), &["/no/such.zst", "--trace"]);
    BENCH.refuses(&trace(cut.path()), &[cut.path(), "byte ", "truncated"]);
    BENCH.refuses(&trace(plain.path()), &[plain.path(), "zstd"]);
    BENCH.refuses(&trace(wrong.path()), &[wrong.path(), "byte ", "record 0", "group 9 of 5"]);
    BENCH.refuses(&trace(foreign.path()), &[foreign.path(), "byte 4", "header"]);
    let good = file("rstat-good.zst", &good);
    let totals = [&trace(good.path())[..], &["--totals", "/no/such/totals.csv"]].concat();
    BENCH.refuses(&totals, &["/no/such/totals.csv", "--totals"]);
    BENCH.refuses(&["rstat", "--totals", "x.csv"], &["--trace"]);
    BENCH.refuses(&["kill", "--trace", good.path()], &["--trace", "rstat"]);
}
