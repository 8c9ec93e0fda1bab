use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::bench::runner::{self, Cell};

/// The cells with few `groups`, so that a test is short.
fn small(mut plan: Plan) -> Plan {
    let is_small = |cells: &Vec<Cell>| {
        let number: Option<u64> = cells[0].params.0[1].1.as_str().parse().ok();
        number.is_some_and(|number| number <= 1_000)
    };
    plan.groups.retain(is_small);
    plan.rounds_max = 1;
    plan
}

#[test]
fn every_cell_becomes_a_row_of_a_positive_value() {
    let plan = small(plan(&Inputs { quick: true, ..Inputs::default() }).expect("CPUs"));
    let cells = plan.groups.iter().map(|cells| cells[0].params.clone());
    let expected: Vec<Params> = cells.collect();
    let distinct: HashSet<String> = expected.iter().map(|params| format!("{params:?}")).collect();
    assert_eq!(distinct.len(), expected.len());
    let measured = runner::run(plan, Duration::ZERO, &mut || false);
    let measured = measured.expect("measured");
    // The test program cannot measure memory in a process of its own.
    let weighed = |params: &Params| format!("{params:?}").contains("memory_idle");
    let updated =
        |params: &Params| format!("{params:?}").contains("memory_updated") || weighed(params);
    for params in expected.iter().filter(|params| !updated(params)) {
        let row = measured.rows.iter().find(|row| row.params == *params);
        let row = row.unwrap_or_else(|| panic!("no row of {params:?}"));
        // Memory is the growth of the process, in which other tests free memory at the same time.
        let of_all_tests = format!("{params:?}").contains("memory_");
        assert!((row.value > 0.0 || of_all_tests) && !row.samples.is_empty(), "{row:?}");
    }
    let said = measured.notes.iter().any(|note| note.contains("memory was not measured"));
    assert!(said, "{:?}", measured.notes);
}

#[test]
fn a_quick_run_says_it_lacks_the_largest_tree() {
    let quick = plan(&Inputs { quick: true, ..Inputs::default() }).expect("CPUs");
    assert!(quick.notes.iter().any(|note| note.contains("1,000,000")), "{:?}", quick.notes);
    let has = |plan: &Plan, size: usize| {
        plan.groups.iter().any(|cells| cells[0].params.get("groups") == Some(&size.to_string()))
    };
    assert!(has(&quick, 100_000) && !has(&quick, 1_000_000));
    let full = plan(&Inputs::default()).expect("CPUs");
    let said = full.notes.iter().any(|note| note.contains("4 GiB"));
    assert!(has(&full, 1_000_000) != said);
}

#[test]
fn any_visits_every_group() {
    for size in [10, 1_000, 1_234] {
        let made = crowd::Made::new(size, |builder| builder).expect("address space");
        let paths: HashSet<&str> = (0..size).map(|n| made.any(n).path()).collect();
        assert_eq!(paths.len(), size);
    }
}
