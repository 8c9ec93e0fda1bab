use super::super::definition::definitions;
use super::*;

const SMALL: &str = "table = 't'\nbaseline = 'a'\n[params.cpus]\nabout = 'CPUs'\n[variants.a]\nabout = 'it'\n\
    [[cell]]\nparams = {}\nvariant = 'x'\nours = { params = { cpus = 2 }, variant = 'a' }\n";

/// A record of rows of these tables, parameters and variants.
fn of(rows: &[(&str, &str, &str)]) -> Record {
    let row = |(table, params, variant): &(&str, &str, &str)| {
        format!(r#"{{"table":"{table}","params":{{{params}}},"variant":"{variant}"}}"#)
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let text = format!(
        r#"{{"machine":{{"arch":"a","cpus":2,"kernel":"k","backend":"b","date":"d"}},
        "absent":[{{"table":"u","variant":"a","reason":"one CPU"}}],"rows":[{}]}}"#,
        rows.join(",")
    );
    Record::parse(&text).expect("a record")
}

fn found(definition: &str, rows: &[(&str, &str, &str)]) -> Vec<String> {
    let definition = Definition::parse(definition).expect("a definition");
    gaps(&of(rows), &[definition]).into_iter().collect()
}

#[test]
fn a_complete_record_has_no_gaps() {
    let rows = [("t", r#""cpus":2,"more":"x""#, "a")];
    assert_eq!(found(SMALL, &rows), ["t: the parameter more has no description"]);
    assert!(found(SMALL, &[("t", r#""cpus":2"#, "a")]).is_empty());
}

#[test]
fn each_gap_on_either_side_is_reported_once() {
    let gaps = found(SMALL, &[("t", r#""cpus":1"#, "b"), ("t", r#""cpus":3"#, "b")]);
    assert_eq!(gaps, ["t: no row matches a, cpus 2", "t: the variant b has no description"]);
    let gaps = found(SMALL, &[("u", "", "a")]);
    assert!(gaps.contains(&"u: measured, but not defined".to_owned()), "{gaps:?}");
    assert!(gaps.contains(&"t: defined, but not measured".to_owned()), "{gaps:?}");
}

/// A cell is answered by every workload that is declared to answer it.
#[test]
fn a_cell_is_answered_by_all_said_to_answer() {
    let workloads = "[params.load]\nabout = 'how much'\n\
        [[answers]]\nname = 'slow'\nparams = { load = 'low' }\n\
        [[answers]]\nname = 'fast'\nparams = { load = 'high' }\n";
    let definition = format!("{SMALL}{workloads}");
    let low = ("t", r#""cpus":2,"load":"low""#, "a");
    assert_eq!(found(&definition, &[low]), ["t: no row matches a, cpus 2, load high"]);
    assert!(found(&definition, &[low, ("t", r#""cpus":2,"load":"high""#, "a")]).is_empty());
}

#[test]
fn an_absence_with_a_reason_is_not_a_gap() {
    let rows = [("t", r#""cpus":1"#, "a")];
    assert_eq!(found(SMALL, &rows).len(), 1);
    let other = SMALL.replace("table = 't'", "table = 'u'");
    assert!(found(&other, &[("u", r#""cpus":1"#, "a")]).is_empty());
}

#[test]
fn a_definitions_baseline_is_among_its_variants() {
    for definition in definitions() {
        let Definition { table, baseline, variants, cell, .. } = definition;
        assert!(variants.contains_key(baseline), "{table}: {baseline}");
        for cell in cell {
            let ours = cell.ours.as_ref();
            assert!(ours.is_some() != cell.reason.is_some(), "{table}: ours or reason: {cell:?}");
            assert!(ours.is_none_or(|ours| variants.contains_key(&ours.variant)), "{cell:?}");
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
    for (table, cells) in documents {
        let found = &super::super::definition(table).cell;
        let distinct: BTreeSet<String> =
            found.iter().map(|cell| format!("{} {}", cell.params, cell.variant)).collect();
        assert_eq!((found.len(), distinct.len()), (cells, cells), "{table}");
    }
}
