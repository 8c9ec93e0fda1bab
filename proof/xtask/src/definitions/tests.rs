use std::collections::BTreeSet;

use serde_json::json;

use super::*;

fn small() -> Definitions {
    let text = "table = 't'\nbaseline = 'a'\n[params.cpus]\nabout = 'CPUs'\n[variants.a]\nabout = 'it'\n\
        [[cell]]\nparams = {}\nvariant = 'x'\nours = { params = { cpus = 2 }, variant = 'a' }\n";
    BTreeMap::from([("t".to_owned(), text.parse().expect("TOML"))])
}

fn of(rows: &Value) -> Value {
    json!({"machine": {}, "rows": rows})
}

#[test]
fn a_record_that_answers_everything_is_remarked_by_nothing() {
    let rows = json!([{"table": "t", "params": {"cpus": 2, "more": "x"}, "variant": "a"}]);
    assert_eq!(findings(&small(), &of(&rows)), ["t: nothing says what the parameter more is"]);
    let rows = json!([{"table": "t", "params": {"cpus": 2}, "variant": "a"}]);
    assert!(findings(&small(), &of(&rows)).is_empty());
}

#[test]
fn what_is_missing_on_either_side_is_named_once() {
    let row = |cpus: u64, variant: &str| json!({"table": "t", "params": {"cpus": cpus}, "variant": variant});
    let found = findings(&small(), &of(&json!([row(1, "b"), row(3, "b")])));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("t: no row is") && found[0].contains("cpus = 2"), "{found:?}");
    assert_eq!(found[1], "t: nothing says what the variant b is");
    let other = json!([{"table": "u", "params": {}, "variant": "a"}]);
    let found = findings(&small(), &of(&other));
    assert!(found.contains(&"u: measured, and not defined".to_owned()), "{found:?}");
    assert!(found.contains(&"t: defined, and not measured".to_owned()), "{found:?}");
}

#[test]
fn what_is_absent_with_a_reason_is_no_gap() {
    let mut record = of(&json!([{"table": "t", "params": {"cpus": 1}, "variant": "a"}]));
    assert_eq!(findings(&small(), &record).len(), 1);
    record["absent"] = json!([{"table": "t", "variant": "a", "reason": "one CPU"}]);
    assert!(findings(&small(), &record).is_empty());
}

#[test]
fn a_definition_names_its_baseline_among_its_variants() {
    for (table, definition) in read().expect("definitions") {
        let baseline = definition["baseline"].as_str().expect("a name");
        let variants = definition["variants"].as_table().expect("variants");
        assert!(variants.contains_key(baseline), "{table}: {baseline}");
        for cell in list(&definition, "cell") {
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
    let definitions = read().expect("definitions");
    for (table, cells) in documents {
        let found = definitions[table]["cell"].as_array().expect("cells");
        let distinct: BTreeSet<String> =
            found.iter().map(|cell| format!("{} {}", cell["params"], cell["variant"])).collect();
        assert_eq!((found.len(), distinct.len()), (cells, cells), "{table}");
    }
}
