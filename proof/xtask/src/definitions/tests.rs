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
fn a_complete_record_has_no_findings() {
    let rows = json!([{"table": "t", "params": {"cpus": 2, "more": "x"}, "variant": "a"}]);
    assert_eq!(findings(&small(), &of(&rows)), ["t: the parameter more has no description"]);
    let rows = json!([{"table": "t", "params": {"cpus": 2}, "variant": "a"}]);
    assert!(findings(&small(), &of(&rows)).is_empty());
}

#[test]
fn each_gap_on_either_side_is_reported_once() {
    let row = |cpus: u64, variant: &str| json!({"table": "t", "params": {"cpus": cpus}, "variant": variant});
    let found = findings(&small(), &of(&json!([row(1, "b"), row(3, "b")])));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("t: no row matches") && found[0].contains("cpus = 2"),
        "{found:?}"
    );
    assert_eq!(found[1], "t: the variant b has no description");
    let other = json!([{"table": "u", "params": {}, "variant": "a"}]);
    let found = findings(&small(), &of(&other));
    assert!(found.contains(&"u: measured, but not defined".to_owned()), "{found:?}");
    assert!(found.contains(&"t: defined, but not measured".to_owned()), "{found:?}");
}

/// A cell is answered by every workload that is declared to answer it.
#[test]
fn a_cell_is_answered_by_all_said_to_answer() {
    let workloads = "[[answers]]\nname = 'slow'\nparams = { load = 'low' }\n\
        [[answers]]\nname = 'fast'\nparams = { load = 'high' }\n";
    let mut definitions = small();
    let definition = definitions.get_mut("t").expect("it is there");
    definition.extend(workloads.parse::<toml::Table>().expect("TOML"));
    definition["params"]
        .as_table_mut()
        .expect("a table")
        .extend("load = { about = 'how much' }".parse::<toml::Table>().expect("TOML"));
    let row =
        |load: &str| json!({"table": "t", "params": {"cpus": 2, "load": load}, "variant": "a"});
    let found = findings(&definitions, &of(&json!([row("low")])));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("no row matches") && found[0].contains("high"), "{found:?}");
    assert!(findings(&definitions, &of(&json!([row("low"), row("high")]))).is_empty());
}

#[test]
fn an_absence_with_a_reason_is_not_a_gap() {
    let mut record = of(&json!([{"table": "t", "params": {"cpus": 1}, "variant": "a"}]));
    assert_eq!(findings(&small(), &record).len(), 1);
    record["absent"] = json!([{"table": "t", "variant": "a", "reason": "one CPU"}]);
    assert!(findings(&small(), &record).is_empty());
}

#[test]
fn a_definitions_baseline_is_among_its_variants() {
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
fn no_cell_of_a_document_is_missing() {
    // Rows times columns of figures; the definition names columns that are derived from others.
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
