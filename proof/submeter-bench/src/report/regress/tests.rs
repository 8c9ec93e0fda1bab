use serde_json::{Value, json};

use super::super::definition::definitions;
use super::*;

/// Returns samples around `value` that spread by the fraction `noise` of it.
fn around(value: f64, noise: f64) -> Vec<f64> {
    (0..25).map(|n| value * (1.0 + noise * (f64::from(n * 7 % 25) / 12.0 - 1.0))).collect()
}

fn record(ours: &[f64], base: &[f64], unit: &str) -> Value {
    let row = |variant: &str, samples: &[f64]| {
        json!({"table": "t", "params": {"cpus": "all"}, "variant": variant, "value": samples[0],
            "unit": unit, "samples": samples})
    };
    let machine = json!({"arch": "x", "cpus": 2, "kernel": "k", "backend": "r", "date": "d",
        "busy": false, "debug_build": false});
    json!({"machine": machine, "rows": [row("ours", ours), row("base", base)]})
}

fn gates(text: &str) -> [Definition; 1] {
    [Definition::parse(&format!("table = 't'\n{text}")).expect("a definition")]
}

fn compare(old: &Value, new: &Value, definitions: &[Definition]) -> Result<Verdict, String> {
    let [old, new] = [old, new].map(|text| Record::parse(&text.to_string()).expect("a record"));
    super::compare(&old, &new, definitions)
}

fn compared(old: &Value, new: &Value) -> Verdict {
    let gates = gates("[[gate]]\nvariant = 'ours'\nagainst = { variant = 'base' }");
    compare(old, new, &gates).expect("they have a ratio in common")
}

#[test]
fn a_true_loss_is_found_in_either_direction() {
    for (unit, ours) in [("ns", 20.0), ("loops/s", 5.0)] {
        let old = record(&around(10.0, 0.1), &around(30.0, 0.1), unit);
        let new = record(&around(ours, 0.1), &around(30.0, 0.1), unit);
        let found = compared(&old, &new);
        assert_eq!(found.losses.len(), 1, "{found}");
        let text = found.to_string();
        assert!(text.starts_with("t cpus all: ours ÷ base: 0.33"), "{text}");
        assert!(compared(&new, &old).losses.is_empty(), "a gain is not a loss");
    }
}

#[test]
fn a_slower_machine_is_not_a_loss() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let new = record(&around(100.0, 0.1), &around(300.0, 0.1), "ns");
    assert!(compared(&old, &new).losses.is_empty());
}

#[test]
fn a_change_within_noise_or_floor_is_no_loss() {
    let old = record(&around(10.0, 0.9), &around(30.0, 0.1), "ns");
    let noisy = record(&around(14.0, 0.9), &around(30.0, 0.1), "ns");
    let found = compared(&old, &noisy);
    assert!(found.losses.is_empty());
    assert!(found.to_string().contains("ours ÷ base: too noisy"), "{found}");
    let old = record(&around(10.0, 0.01), &around(30.0, 0.01), "ns");
    let little = record(&around(12.0, 0.01), &around(30.0, 0.01), "ns");
    assert!(compared(&old, &little).losses.is_empty());
}

#[test]
fn a_different_machine_is_skipped_with_a_message() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let mut new = record(&around(90.0, 0.1), &around(30.0, 0.1), "ns");
    new["machine"]["cpus"] = json!(8);
    let found = compared(&old, &new);
    assert!(found.losses.is_empty());
    assert!(found.to_string().starts_with("skipped: cpus was 2 and is 8"), "{found}");
}

#[test]
fn nothing_in_common_is_not_a_success() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let few = record(&[10.0; 4], &[30.0; 4], "ns");
    assert!(compare(&old, &few, definitions()).is_err());
}

#[test]
fn a_loss_counts_when_every_run_has_it() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let bad = compared(&old, &record(&around(20.0, 0.1), &around(30.0, 0.1), "ns"));
    let good = compared(&old, &record(&around(10.0, 0.1), &around(30.0, 0.1), "ns"));
    let worse = compared(&old, &record(&around(30.0, 0.1), &around(30.0, 0.1), "ns"));
    assert_eq!(worse.and(&bad).losses.len(), 1);
    assert!(bad.and(&good).losses.is_empty());
}

#[test]
fn each_table_with_a_loss_is_named_once() {
    let mut found = Verdict::default();
    for name in ["rstat {} a ÷ b", "rstat {} c ÷ b", "kill {} a ÷ b"] {
        found.losses.insert(name.to_owned(), String::new());
    }
    found.noisy.insert("perf {} a ÷ b".to_owned(), String::new());
    assert!(found.to_string().ends_with("\nworse than unknown: kill rstat\n"), "{found}");
}

#[test]
fn a_gate_may_compare_with_other_parameters() {
    let with = |ours: f64| {
        let mut record = record(&around(ours, 0.1), &around(30.0, 0.1), "ns");
        record["rows"][1]["params"] = json!({"case": "clock", "groups": 1});
        record
    };
    let text = "[[gate]]\nparams = { cpus = 'all' }\nvariant = 'ours'\nagainst = { variant = 'base', \
        params = { case = 'clock' } }";
    let found = compare(&with(10.0), &with(20.0), &gates(text)).expect("a ratio");
    assert_eq!((found.compared, found.losses.len()), (1, 1), "{found}");
    let other = text.replace("'all'", "'1'");
    assert!(compare(&with(10.0), &with(20.0), &gates(&other)).is_err());
}

#[test]
fn a_busy_machine_is_not_held_to_a_quiet_one() {
    let quiet = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let mut busy = quiet.clone();
    busy["machine"]["busy"] = json!(true);
    let text = "[[gate]]\nvariant = 'ours'\nagainst = { variant = 'base' }";
    assert!(compare(&quiet, &busy, &gates(text)).expect("records").skipped.is_some());
}

#[test]
fn a_gate_may_have_a_floor_of_its_own() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let new = record(&around(20.0, 0.1), &around(30.0, 0.1), "ns");
    let text = "[[gate]]\nfloor = 2.5\nvariant = 'ours'\nagainst = { variant = 'base' }";
    assert!(compare(&old, &new, &gates(text)).expect("a ratio").losses.is_empty());
    let lower = text.replace("2.5", "1.5");
    assert_eq!(compare(&old, &new, &gates(&lower)).expect("a ratio").losses.len(), 1);
}

#[test]
fn gates_name_variants_of_their_table() {
    let mut gated = 0;
    for Definition { table, variants, gate, .. } in definitions() {
        for gate in gate {
            for variant in [&gate.variant, &gate.against.variant] {
                assert!(variants.contains_key(variant), "{table}: {variant}");
            }
            gated += 1;
        }
    }
    assert!(gated >= 8, "{gated}");
}
