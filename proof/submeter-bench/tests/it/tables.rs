//! The tables.

use std::collections::BTreeMap;

use serde_json::Value;
use submeter_program::{TempFile, text};

use super::BENCH;

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("written")).expect("JSON")
}

/// Checks what every record must have, and returns the number of rows of each table.
fn is_coherent(json: &Value) -> BTreeMap<String, usize> {
    let machine = &json["machine"];
    for name in [
        "arch",
        "kernel",
        "backend",
        "backend_reason",
        "self_test",
        "clock",
        "pinning",
        "mode",
        "date",
        "version",
        "rustc",
    ] {
        assert!(machine[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {machine:#}");
    }
    assert!(machine["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{machine:#}");
    assert!(machine["load_average"].as_array().is_some_and(|l| l.len() == 3), "{machine:#}");
    assert!(machine["warnings"].is_array() && machine["interrupted"].is_boolean(), "{machine:#}");
    assert!(json["notes"].is_array() && machine["budget_seconds"].is_object(), "{json:#}");
    let mut tables = BTreeMap::new();
    let mut seen = Vec::new();
    for row in json["rows"].as_array().expect("a list") {
        let names: Vec<&str> = row.as_object().expect("an object").keys().map(|k| &**k).collect();
        let expected = ["params", "samples", "table", "unit", "value", "variant"];
        assert_eq!(names, expected, "{row}");
        let cell = (row["table"].clone(), row["params"].clone(), row["variant"].clone());
        assert!(!seen.contains(&cell), "a cell is measured once: {row}");
        seen.push(cell);
        assert!(row["params"].is_object() && row["variant"].is_string(), "{row}");
        let samples = row["samples"].as_array().expect("a list");
        assert!(samples.iter().all(|sample| sample.as_f64().is_some_and(|v| v > 0.0)), "{row}");
        assert!(samples.contains(&row["value"]), "a value is one of the samples: {row}");
        *tables.entry(row["table"].as_str().expect("a name").to_owned()).or_default() += 1;
    }
    tables
}

#[test]
fn rcuref_is_measured_shown_and_written() {
    let file = TempFile::new("bench.json", "");
    let output = BENCH.run(&["rcuref", "--quick", "--rounds", "2", "--json", file.path()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "", "no progress without a terminal");
    assert!(!out.contains('\u{1b}'), "no colours without a terminal: {out}");
    for part in
        ["rcuref", "inc_not_zero", "weak_upgrade", "plain_atomic", "multiple of inc_not_zero"]
    {
        assert!(out.contains(part), "{part} in {out}");
    }
    let json = read(file.path());
    assert_eq!(is_coherent(&json), BTreeMap::from([("rcuref".to_owned(), 26)]));
    for row in json["rows"].as_array().expect("a list") {
        let is_cache = row["params"]["part"] == "cache";
        assert_eq!(row["unit"], if is_cache { "requests/s" } else { "pairs/s" });
        assert!(["1", "all"].iter().any(|cpus| row["params"]["cpus"] == *cpus), "{row}");
        assert!(row["samples"].as_array().is_some_and(|s| (1..=2).contains(&s.len())), "{row}");
    }
}

#[test]
fn json_goes_to_standard_output_alone() {
    let output = BENCH.run(&["kill", "--quick", "--json", "-"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let json: Value = serde_json::from_str(&out).expect("only JSON");
    let rows = is_coherent(&json)["kill"];
    assert!(rows >= 4, "{out}");
    assert!(err.contains("kill_many_1000"), "the table goes to standard error: {err}");
}

#[test]
fn when_interrupted_it_reports_what_it_has() {
    let file = TempFile::new("bench-signal.json", "");
    std::fs::remove_file(file.path()).expect("it was there");
    let page = TempFile::new("bench-signal.html", "");
    let args = ["--seconds", "600", "--json", file.path(), "--html", page.path()];
    let mut bench = BENCH.start(&args);
    // The program installs its signal handler before it checks that it can write, and measures
    // after that. If the signal comes during the warm-up, there is nothing to show, and the report
    // says so.
    while !std::path::Path::new(file.path()).exists() && !bench.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    bench.signal("INT");
    let (code, out) = bench.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("interrupted"), "{out}");
    let json = read(file.path());
    assert_eq!(json["machine"]["interrupted"], true);
    assert!(is_coherent(&json).len() <= 1, "the first table had ten minutes");
    let page = std::fs::read_to_string(page.path()).expect("written");
    assert!(page.contains("The run was interrupted"), "{page}");
}

#[test]
fn bad_input_is_one_line() {
    BENCH.refuses(&["rcurf"], &["rcurf", "rcuref", "percpu_ref", "kill"]);
    BENCH.refuses(&["--quick", "--seconds", "2"], &["--quick", "--seconds"]);
    BENCH.refuses(&["--seconds", "0"], &["--seconds", "0"]);
    BENCH.refuses(&["--htlm", "x.html"], &["--htlm"]);
    BENCH.refuses(&["--json", "/no/such/file.json"], &["/no/such/file.json", "--json"]);
}
