//! `submeter doctor` in several environments.

use std::process::Command;

use serde_json::Value;
use submeter_program::text;

use crate::support::SUBMETER;

/// Runs the command with `variables`; returns what it printed.
fn doctor(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_submeter"))
        .arg("doctor")
        .args(args)
        .env_remove("SUBMETER_RSEQ")
        .envs(variables.iter().copied())
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(variables: &[(&str, &str)]) -> Value {
    serde_json::from_str(&doctor(&["--json"], variables)).expect("JSON")
}

/// Asserts what holds in every environment.
fn is_coherent(diagnosis: &Value) {
    assert!(diagnosis["no_operations"].is_null(), "{diagnosis:#}");
    let operations = diagnosis["operations"].as_array().expect("rows");
    assert_eq!(operations.len(), 4, "{diagnosis:#}");
    for row in operations {
        assert!(row["best_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row:#}");
        for figure in [&row["here_ns"], &row["without_ns"]] {
            let number = |name: &str| figure[name].as_f64().expect("a number");
            assert!(0.0 < number("low"), "{row:#}");
            assert!(number("low") <= number("median"), "{row:#}");
            assert!(number("median") <= number("high"), "{row:#}");
        }
    }
    let best = diagnosis["backend"] == "libc_rseq";
    assert_eq!(diagnosis["remedies"].as_array().expect("a list").is_empty(), best, "{diagnosis:#}");
}

/// Doctor reports what it found, decided and measured.
#[test]
fn doctor_says_what_it_found_and_measured() {
    let diagnosis = json(&[]);
    is_coherent(&diagnosis);
    let shown = doctor(&[], &[]);
    for part in ["world", "best world", "kernel", "membarrier", "self-test", "without submeter"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    assert_eq!(diagnosis["kernel"], release.trim());
    assert!(shown.contains(release.trim()), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colours in a pipe: {shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}

#[test]
fn switched_off_it_says_how_to_switch_it_on() {
    let off = [("SUBMETER_RSEQ", "off")];
    let diagnosis = json(&off);
    is_coherent(&diagnosis);
    // A build without sequences decides before anything else.
    if !cfg!(submeter_portable) {
        assert_eq!(diagnosis["reason"], "SUBMETER_RSEQ=off");
        let shown = doctor(&[], &off);
        assert!(shown.contains("unset the environment variable SUBMETER_RSEQ"), "{shown}");
    }
    assert_eq!(diagnosis["self_test"], "not run");
    assert!(diagnosis["backend"].as_str().expect("a name").starts_with("locked_"), "{diagnosis:#}");
}

#[test]
fn a_misspelt_variable_is_named() {
    let diagnosis = json(&[("SUBMETER_RSEQ", "of")]);
    is_coherent(&diagnosis);
    let reason = diagnosis["reason"].as_str().expect("a reason");
    let named = if cfg!(submeter_portable) { "submeter_portable" } else { "\"of\"" };
    assert!(reason.contains(named), "{reason}");
}

#[test]
fn without_libc_registration_it_still_decides() {
    let diagnosis = json(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
    is_coherent(&diagnosis);
}

#[test]
fn doctor_refuses_what_it_does_not_know() {
    SUBMETER.refuses(&["doctor", "--jsn"], &["--jsn", "'--json'"]);
    SUBMETER.refuses(&["doctor", "now"], &["now"]);
}
