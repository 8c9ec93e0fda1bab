//! `submeter-bench end_to_end`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use submeter_program::{TempFile, text};

use super::BENCH;

const OURS: [&str; 4] =
    ["submeter", "submeter_no_perf_events", "submeter_limited", "submeter_plain"];
const THEIRS: [&str; 2] = ["memcached", "memcached_stats"];

/// One tenant with a thousand items, where what is measured is not what is tested.
const SMALL: &str = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
                     operations,ttls\na,20,200,1,1,0.1,get=1,\n";

fn has_memcached() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join("memcached").is_file());
    if !found {
        println!("skipped: memcached: it is not on the PATH; on Debian: apt install memcached");
    }
    found
}

/// Returns the value of the row with these parameters.
fn value(rows: &[Value], params: &Value, variant: &str) -> f64 {
    let found: Vec<_> =
        rows.iter().filter(|r| r["params"] == *params && r["variant"] == variant).collect();
    assert_eq!(found.len(), 1, "{variant} {params}");
    found[0]["value"].as_f64().expect("a number")
}

/// Runs the table with this `PATH` and arguments; returns its text and its JSON.
fn run(path: &str, more: &[&str]) -> (String, Value) {
    let file = TempFile::new("bench-end-to-end.json", "");
    let args = [&["end_to_end", "--quick", "--rounds", "1", "--json", file.path()], more].concat();
    let output = BENCH.run_in(&args, &[("PATH", path)]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "", "no progress without a terminal");
    let json = fs::read_to_string(file.path()).expect("written");
    (out, serde_json::from_str(&json).expect("JSON"))
}

/// Asserts that these variants have all their figures and other variants have none.
fn assert_figures(json: &Value, variants: &[&str]) {
    let rows = json["rows"].as_array().expect("a list");
    let measured: BTreeSet<&str> = rows.iter().filter_map(|row| row["variant"].as_str()).collect();
    assert_eq!(measured, variants.iter().copied().collect());
    for variant in variants {
        for pipeline in [1, 8] {
            let params = |measure: &str| json!({ "measure": measure, "pipeline": pipeline });
            assert!(value(rows, &params("throughput"), variant) > 0.0);
            let latency = |quantile: &str| {
                let mut params = params("latency");
                params["quantile"] = json!(quantile);
                value(rows, &params, variant)
            };
            assert!(0.0 < latency("p50") && latency("p50") <= latency("p99"));
            assert!(latency("p99") <= latency("p99.9"));
            if Path::new("/proc/self/schedstat").exists() {
                assert!(value(rows, &params("cpu"), variant) > 0.0);
            } else {
                println!("skipped: CPU time: this kernel has no schedstat (CONFIG_SCHED_INFO)");
            }
        }
        let bytes = value(rows, &json!({ "measure": "memory" }), variant);
        let overhead = value(rows, &json!({ "measure": "memory_overhead" }), variant);
        assert!(0.0 < overhead && overhead < bytes, "{variant}: {overhead} of {bytes}");
    }
    // Variants are compared slice by slice.
    let throughput = rows.iter().filter(|row| row["params"]["measure"] == "throughput");
    let slices: BTreeSet<usize> =
        throughput.filter_map(|row| Some(row["samples"].as_array()?.len())).collect();
    assert_eq!(slices.len(), 1, "{slices:?}");
}

#[test]
fn both_servers_are_measured() {
    let path = std::env::var("PATH").unwrap_or_default();
    let tenants = TempFile::new("bench-both.csv", SMALL);
    let (out, json) = run(&path, &["--tenants-file", tenants.path()]);
    let variants = if has_memcached() { [&OURS[..], &THEIRS].concat() } else { OURS.to_vec() };
    assert_figures(&json, &variants);
    for variant in variants {
        assert!(out.contains(variant), "{variant} in {out}");
    }
}

#[test]
fn a_missing_memcached_is_reported_as_absent() {
    let tenants = TempFile::new("bench-absent.csv", SMALL);
    let (out, json) = run("", &["--tenants-file", tenants.path()]);
    assert_figures(&json, &OURS);
    let absent = json["absent"].as_array().expect("a list");
    let variants: BTreeSet<&str> =
        absent.iter().filter_map(|one| one["variant"].as_str()).collect();
    assert_eq!(variants, BTreeSet::from(THEIRS));
    assert!(absent.iter().all(|one| one["reason"].as_str().is_some_and(|r| r.contains("apt"))));
    for variant in THEIRS {
        assert!(out.contains(&format!("not measured: {variant}: there is no memcached")), "{out}");
    }
}

/// Finds the running processes that `parent` has started.
fn children(parent: u32) -> Vec<u32> {
    let of_parent = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // A program's name may contain anything, even parentheses.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut words = rest.split_whitespace();
        let (state, of) = (words.next(), words.next().and_then(|of| of.parse().ok()));
        state != Some("Z") && of == Some(parent)
    };
    let all = fs::read_dir("/proc").expect("mounted").flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(of_parent).collect()
}

/// When interrupted it stops its servers and reports what it has.
#[test]
fn an_interrupt_reports_what_there_is() {
    let servers = if has_memcached() { 4 } else { 2 };
    let tenants = TempFile::new("bench-interrupted.csv", SMALL);
    let args = ["end_to_end", "--seconds", "600", "--tenants-file", tenants.path()];
    let mut bench = BENCH.start(&args);
    let mut found = Vec::new();
    while found.len() < servers && !bench.has_ended() {
        thread::sleep(Duration::from_millis(20));
        // The servers are children of the table's process.
        found = children(bench.id()).into_iter().flat_map(children).collect();
    }
    bench.signal("INT");
    let (code, out) = bench.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("interrupted"), "{out}");
    assert_eq!(found.len(), servers, "{out}");
    for id in found {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        assert!(
            !["memcached", "submeter-bench"].contains(&name.trim()),
            "{name} {id} is still running"
        );
    }
}
