//! The record for a terminal: all of its rows, without their explanations.

use std::fmt::Write;

use submeter_terminal::{self as terminal, BOLD, DIM};

use super::definition::Definition;
use super::record::Record;
use super::rows;
use crate::row::Row;

/// Writes the tables of `record` in the order of `definitions`, and the notes on them.
pub(crate) fn text(record: &Record, definitions: &[Definition]) -> String {
    let mut text = String::new();
    for definition in definitions {
        table(&mut text, record, definition);
    }
    if record.machine.interrupted {
        let _ =
            writeln!(text, "{BOLD}interrupted{BOLD:#}: figures come from what was measured so far");
    }
    for warning in &record.machine.warnings {
        terminal::paragraph(&mut text, "beware", warning);
    }
    text
}

fn table(text: &mut String, record: &Record, definition: &Definition) {
    let name = &definition.table;
    let rows: Vec<&Row> = record.table(name).collect();
    let notes = record.notes(name);
    if rows.is_empty() && notes.is_empty() {
        return;
    }
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{BOLD}{name}{BOLD:#}  {}", definition.about);
    if rows.is_empty() {
        let _ = writeln!(text, "{DIM}nothing was measured{DIM:#}");
    }
    for group in rows::groups(&rows) {
        let grid = rows::grid(definition, &group);
        let heading: Vec<&str> = grid.heading.iter().map(String::as_str).collect();
        let _ = writeln!(text, "\n{BOLD}{}{BOLD:#}", grid.title);
        text.push_str(&terminal::table(&heading, &grid.lines, false));
    }
    if !rows.is_empty() {
        let _ = writeln!(
            text,
            "{DIM}(×): multiple of {}; ±: half the range of the middle half of the samples{DIM:#}",
            definition.baseline
        );
    }
    for note in notes {
        let _ = writeln!(text, "{DIM}{note}{DIM:#}");
    }
    for absent in record.absent.iter().filter(|absent| absent.table == *name) {
        let _ = writeln!(text, "{DIM}not measured: {}: {}{DIM:#}", absent.variant, absent.reason);
    }
    text.push('\n');
}
