use serde_json::json;

use super::*;

/// Samples around `value` that spread by `noise` of it.
fn around(value: f64, noise: f64) -> Vec<f64> {
    (0..25).map(|n| value * (1.0 + noise * (f64::from(n * 7 % 25) / 12.0 - 1.0))).collect()
}

fn record(ours: &[f64], base: &[f64], unit: &str) -> Value {
    let row = |variant: &str, samples: &[f64]| {
        json!({"table": "t", "params": {"cpus": "all"}, "variant": variant, "value": samples[0],
            "unit": unit, "samples": samples})
    };
    let machine = json!({"arch": "x", "cpus": 2, "rung": "r", "debug_build": false});
    json!({"machine": machine, "rows": [row("ours", ours), row("base", base)]})
}

fn compared(old: &Value, new: &Value) -> Verdict {
    let baselines = BTreeMap::from([("t".to_owned(), "base".to_owned())]);
    compare(old, new, &baselines).expect("they have a ratio in common")
}

#[test]
fn a_true_loss_is_found_in_either_direction() {
    for (unit, ours) in [("ns", 20.0), ("loops/s", 5.0)] {
        let old = record(&around(10.0, 0.1), &around(30.0, 0.1), unit);
        let new = record(&around(ours, 0.1), &around(30.0, 0.1), unit);
        let found = compared(&old, &new);
        assert_eq!(found.losses.len(), 1, "{found}");
        assert!(found.losses[0].starts_with("t {\"cpus\":\"all\"} ours ÷ base: 0.33"), "{found}");
        assert!(compared(&new, &old).losses.is_empty(), "a gain is no loss");
    }
}

#[test]
fn a_slower_machine_is_no_loss() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let new = record(&around(100.0, 0.1), &around(300.0, 0.1), "ns");
    assert!(compared(&old, &new).losses.is_empty());
}

#[test]
fn what_lies_within_the_noise_or_the_floor_is_no_loss() {
    let old = record(&around(10.0, 0.9), &around(30.0, 0.1), "ns");
    let noisy = record(&around(14.0, 0.9), &around(30.0, 0.1), "ns");
    assert!(compared(&old, &noisy).losses.is_empty());
    let old = record(&around(10.0, 0.01), &around(30.0, 0.01), "ns");
    let little = record(&around(12.0, 0.01), &around(30.0, 0.01), "ns");
    assert!(compared(&old, &little).losses.is_empty());
}

#[test]
fn another_machine_is_skipped_and_said() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let mut new = record(&around(90.0, 0.1), &around(30.0, 0.1), "ns");
    new["machine"]["cpus"] = json!(8);
    let found = compared(&old, &new);
    assert!(found.losses.is_empty());
    assert!(found.to_string().starts_with("skipped: cpus was 2 and is 8"), "{found}");
}

#[test]
fn nothing_in_common_is_no_success() {
    let old = record(&around(10.0, 0.1), &around(30.0, 0.1), "ns");
    let few = record(&[10.0; 4], &[30.0; 4], "ns");
    assert!(compare(&old, &few, &baselines().expect("definitions")).is_err());
    assert!(read(Path::new("/nonexistent.json")).is_err());
}

#[test]
fn a_definition_names_its_baseline_among_its_variants() {
    for (table, baseline) in baselines().expect("definitions") {
        let path = crate::workspace_root().join(format!("bench/definitions/{table}.toml"));
        let text = std::fs::read_to_string(path).expect("named as its table");
        let definition: toml::Table = text.parse().expect("TOML");
        let variants = definition["variants"].as_table().expect("variants");
        assert!(variants.contains_key(&baseline), "{table}: {baseline}");
        for cell in definition.get("cell").and_then(|cells| cells.as_array()).into_iter().flatten()
        {
            let ours = cell.get("ours").map(|ours| ours["variant"].as_str().expect("a name"));
            let reason = cell.get("reason").and_then(|reason| reason.as_str());
            assert!(ours.is_some() != reason.is_some(), "{table}: one of ours and reason: {cell}");
            assert!(ours.is_none_or(|ours| variants.contains_key(ours)), "{table}: {cell}");
        }
    }
}

#[test]
fn no_cell_of_a_document_s_table_is_left_out() {
    // Rows times columns of figures; columns that follow from others are named in the definition.
    let documents = [
        ("rcuref", 3 * 2),
        ("percpu_ref", 12 * 2),
        ("percpu_counter", 5 * 2),
        ("rstat", 14 * 4),
        ("perf", 4),
    ];
    for (table, cells) in documents {
        let path = crate::workspace_root().join(format!("bench/definitions/{table}.toml"));
        let text = std::fs::read_to_string(path).expect("named as its table");
        let definition: toml::Table = text.parse().expect("TOML");
        let found = definition["cell"].as_array().expect("cells");
        let distinct: std::collections::BTreeSet<String> =
            found.iter().map(|cell| format!("{} {}", cell["params"], cell["variant"])).collect();
        assert_eq!((found.len(), distinct.len()), (cells, cells), "{table}");
    }
}
