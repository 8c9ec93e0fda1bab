//! `submeter-bench worlds`.

use std::collections::BTreeSet;

use serde_json::Value;
use submeter_program::{TempFile, World, text};

use super::BENCH;

/// Every world is measured beside the naive peer, or named with what is missing.
#[test]
fn each_world_is_measured_or_named() {
    let file = TempFile::new("bench-worlds.json", "");
    let output = BENCH.run(&["worlds", "--quick", "--rounds", "1", "--json", file.path()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let json = std::fs::read_to_string(file.path()).expect("written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let list = |name: &str| json[name].as_array().expect("a list").clone();
    let variants = |of: &[Value]| -> BTreeSet<String> {
        of.iter().map(|row| row["variant"].as_str().expect("a name").to_owned()).collect()
    };
    let (rows, absent) = (list("rows"), list("absent"));
    let (measured, missing) = (variants(&rows), variants(&absent));
    for one in &absent {
        println!("skipped: the world {}: {}", one["variant"], one["reason"]);
    }
    let worlds: BTreeSet<String> = World::ALL.iter().map(|world| world.name.to_owned()).collect();
    assert!(measured.is_disjoint(&missing), "{measured:?} {missing:?}");
    let named: BTreeSet<String> = measured.union(&missing).cloned().collect();
    assert_eq!(named, worlds.into_iter().chain(["naive".to_owned()]).collect());
    assert!(measured.contains("naive"), "no world at all: {out}");
    for variant in &measured {
        let of = |row: &&Value| row["variant"] == **variant;
        assert_eq!(
            rows.iter().filter(of).count(),
            9,
            "{variant}: each operation, shared ones twice"
        );
        let said = list("notes").iter().any(|note| {
            note.as_str().is_some_and(|note| note.starts_with(&format!("worlds: {variant} is ")))
        });
        assert!(said || variant == "naive", "{variant} says what it found");
    }
    assert!(rows.iter().all(|row| row["unit"] == "ns" && row["value"].as_f64() > Some(0.0)));
}

#[test]
fn a_world_that_nobody_knows_is_refused() {
    BENCH.refuses(&["--world", "mars"], &["there is no world mars"]);
}
