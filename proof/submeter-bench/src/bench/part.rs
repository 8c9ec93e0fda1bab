//! The part of a record that a table's process sends to its parent, and the record that combines
//! all parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::machine::Machine;
use super::runner::{Absent, Measured};
use super::{Mode, Table, warnings};

/// One table's part of a record. Rows stay text: a map would sort their parameters, whose order is
/// significant.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Part {
    /// The table's name.
    pub(crate) table: String,
    /// Its time budget beyond the minimum of rounds.
    budget_seconds: f64,
    pub(crate) interrupted: bool,
    warnings: Vec<String>,
    notes: Vec<String>,
    absent: Vec<Box<RawValue>>,
    pub(crate) rows: Vec<Box<RawValue>>,
}

/// A variant without rows.
#[derive(Serialize)]
struct AbsentLine<'a> {
    table: &'static str,
    variant: &'static str,
    reason: &'a str,
}

impl Part {
    /// Makes the part from what was measured for `table`.
    ///
    /// # Errors
    /// When a row cannot be written as JSON.
    pub(super) fn new(table: &Table, mode: Mode, measured: &Measured) -> serde_json::Result<Part> {
        let absent = measured.absent.iter().map(|&Absent { variant, ref reason }| {
            to_raw_value(&AbsentLine { table: table.name, variant, reason })
        });
        let rounds = format!("{} rounds", measured.rounds);
        // Each note begins with its table's name, by which reports find it.
        let notes = measured.notes.iter().chain([&rounds]);
        Ok(Part {
            table: table.name.to_owned(),
            budget_seconds: table.budget(mode).as_secs_f64(),
            interrupted: measured.interrupted,
            warnings: warnings::of_table(table, measured),
            notes: notes.map(|note| format!("{}: {note}", table.name)).collect(),
            absent: absent.collect::<Result<_, _>>()?,
            rows: measured.rows.iter().map(to_raw_value).collect::<Result<_, _>>()?,
        })
    }
}

/// Writes a record: the machine, and the rows of all tables, one per line, so that records can be
/// compared line by line.
///
/// # Errors
/// When the machine cannot be written as JSON.
pub(crate) fn record(machine: &Machine, mode: Mode, parts: &[Part]) -> serde_json::Result<String> {
    /// Facts about the run apart from the machine.
    #[derive(Serialize)]
    struct Run<'a> {
        #[serde(flatten)]
        machine: &'a Machine,
        mode: &'static str,
        budget_seconds: BTreeMap<&'a str, f64>,
        interrupted: bool,
        warnings: Vec<String>,
    }
    let of_tables = parts.iter().flat_map(|part| part.warnings.iter().cloned());
    let machine = serde_json::to_string_pretty(&Run {
        machine,
        mode: mode.name(),
        budget_seconds: parts.iter().map(|part| (&*part.table, part.budget_seconds)).collect(),
        interrupted: parts.iter().any(|part| part.interrupted),
        warnings: warnings::of_machine(machine).into_iter().chain(of_tables).collect(),
    })?;
    let notes: Vec<Box<RawValue>> =
        parts.iter().flat_map(|part| &part.notes).map(to_raw_value).collect::<Result<_, _>>()?;
    let machine = machine.replace('\n', "\n  ");
    Ok(format!(
        "{{\n  \"machine\": {machine},\n  \"notes\": [{}],\n  \"absent\": [{}],\n  \"rows\": [{}]\n}}\n",
        lines(notes.iter()),
        lines(parts.iter().flat_map(|part| &part.absent)),
        lines(parts.iter().flat_map(|part| &part.rows)),
    ))
}

/// Writes the items of a list, one per line.
fn lines<'a>(items: impl Iterator<Item = &'a Box<RawValue>>) -> String {
    let items: Vec<&str> = items.map(|item| item.get()).collect();
    match items.is_empty() {
        true => String::new(),
        false => format!("\n    {}\n  ", items.join(",\n    ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;

    #[test]
    fn a_record_has_what_each_table_found_and_missed() {
        let absent = Absent { variant: "peer", reason: "no \"compiler\" here".to_owned() };
        let measured = Measured {
            rows: Vec::new(),
            rounds: 0,
            taken: 0,
            disturbed: 0,
            poor: Vec::new(),
            interrupted: true,
            notes: vec!["something is missing".to_owned()],
            absent: vec![absent],
            mixed: false,
        };
        let part = Part::new(&TABLES[0], Mode::Quick, &measured).expect("JSON");
        // In the form in which one process passes it to the other.
        let part = serde_json::to_string(&part).expect("JSON");
        let part: Part = serde_json::from_str(&part).expect("JSON");
        let json = record(&Machine::gather(), Mode::Quick, &[part]).expect("JSON");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["absent"][0]["table"], "rcuref");
        assert_eq!(json["absent"][0]["variant"], "peer");
        assert_eq!(json["absent"][0]["reason"], "no \"compiler\" here");
        assert_eq!(json["notes"][0], "rcuref: something is missing");
        assert_eq!(json["machine"]["interrupted"], true);
    }
}
