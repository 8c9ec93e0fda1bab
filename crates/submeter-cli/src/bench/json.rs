//! The figures, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::machine::Machine;
use super::runner::Absent;
use super::{Outcome, Table};

/// Writes machine and rows; a row a line, so that records can be compared by line.
pub(crate) fn json(outcome: &Outcome, warnings: &[String]) -> serde_json::Result<String> {
    /// What is said of the run beside the machine.
    #[derive(Serialize)]
    struct Run<'a> {
        #[serde(flatten)]
        machine: &'a Machine,
        mode: &'static str,
        /// How long each table was given beyond its fewest rounds.
        budget_seconds: BTreeMap<&'static str, f64>,
        interrupted: bool,
        warnings: &'a [String],
    }
    /// A variant that has no row.
    #[derive(Serialize)]
    struct AbsentLine<'a> {
        table: &'static str,
        variant: &'static str,
        reason: &'a str,
    }
    let budget = |table: &Table| (table.name, table.budget(outcome.mode).as_secs_f64());
    let machine = serde_json::to_string_pretty(&Run {
        machine: &outcome.machine,
        mode: outcome.mode.name(),
        budget_seconds: outcome.tables.iter().map(|(table, _)| budget(table)).collect(),
        interrupted: outcome.interrupted(),
        warnings,
    })?;
    let rows = lines(outcome.rows())?;
    // Each begins with its table's name, for which reports look.
    let notes = lines(outcome.tables.iter().flat_map(|(table, measured)| {
        measured.notes.iter().map(|note| format!("{}: {note}", table.name))
    }))?;
    let absent = lines(outcome.tables.iter().flat_map(|(table, measured)| {
        measured.absent.iter().map(|&Absent { variant, ref reason }| AbsentLine {
            table: table.name,
            variant,
            reason,
        })
    }))?;
    let machine = machine.replace('\n', "\n  ");
    Ok(format!(
        "{{\n  \"machine\": {machine},\n  \"notes\": [{notes}],\n  \"absent\": [{absent}],\n  \"rows\": [{rows}]\n}}\n"
    ))
}

/// Writes the items of a list, a line each.
fn lines<T: Serialize>(items: impl Iterator<Item = T>) -> serde_json::Result<String> {
    let items = items.map(|item| serde_json::to_string(&item)).collect::<Result<Vec<_>, _>>()?;
    if items.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("\n    {}\n  ", items.join(",\n    ")))
}
