//! `submeter-bench alloc`.

use std::collections::BTreeSet;

use serde_json::Value;
use submeter_program::{TempFile, text};

use super::BENCH;

/// Every allocator is measured in a program of its own, or named with what is missing.
#[test]
fn each_allocator_is_measured_or_named() {
    let file = TempFile::new("bench-alloc.json", "");
    let output = BENCH.run(&["alloc", "--quick", "--rounds", "1", "--json", file.path()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let json = std::fs::read_to_string(file.path()).expect("written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| json[name].as_array().expect("a list").clone();
    for one in &list("absent") {
        println!("skipped: {}: {}", one["variant"], one["reason"]);
    }
    let rows = list("rows");
    let glibc = |row: &&Value| row["params"]["allocator"] == "glibc";
    for variant in ["bare", "volume", "sampled", "exact"] {
        let of = rows.iter().filter(glibc).filter(|row| row["variant"] == variant);
        let of: Vec<&Value> = of.collect();
        assert_eq!(of.len(), 6 + 4, "{variant}: each operation, and each size");
        let named = |row: &&Value| row["params"]["operation"].as_str().map(str::to_owned);
        let operations: BTreeSet<_> = of.iter().filter_map(named).collect();
        assert_eq!(operations.len(), 7, "{operations:?}");
    }
    let memory = |variant: &str, size: u64| {
        let is = |row: &&Value| row["variant"] == variant && row["params"]["size"] == size;
        rows.iter().filter(glibc).find(is).and_then(|row| row["value"].as_f64()).expect("weighed")
    };
    // A byte for each 16 is what the owners take, whatever else differs.
    let more = memory("exact", 64) / memory("bare", 64);
    assert!((1.03..1.12).contains(&more), "{more}");
}
