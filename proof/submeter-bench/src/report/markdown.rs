//! The same report as Markdown, for a repository, which does not display an HTML page.

use std::fmt::Write;

use super::contest;
use super::definition::Definition;
use super::format::amount;
use super::growth;
use super::histogram::{Histogram, Share};
use super::record::{Machine, Record};
use super::rows;
use super::section;
use crate::row::Row;

/// Tables with more rows than this appear only on the page: in a document they would bury the rest.
const LINES_MAX: usize = 60;

/// Writes the report of `record`: the machine, then a section for each definition that it has rows
/// for, the documents' tables first.
pub(crate) fn markdown(record: &Record, definitions: &[Definition]) -> String {
    let mut text = String::new();
    machine(&mut text, &record.machine);
    let (documents, own): (Vec<&Definition>, Vec<&Definition>) =
        definitions.iter().partition(|definition| definition.document.is_some());
    for definition in documents.into_iter().chain(own) {
        let rows: Vec<&Row> = record.table(&definition.table).collect();
        if !rows.is_empty() {
            table(&mut text, record, definition, &rows);
        }
    }
    text
}

fn machine(text: &mut String, machine: &Machine) {
    line(text, &["", ""]);
    text.push_str("|---|---|\n");
    for (name, value) in facts(machine) {
        line(text, &[name, &value]);
    }
    for warning in &machine.warnings {
        paragraph(text, &format!("Warning: {warning}"));
    }
}

/// Returns what a reader must know of the machine, with its names.
pub(super) fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let unknown = || "not recorded".to_owned();
    let mut facts = vec![
        ("processor", machine.cpu_model.clone().unwrap_or_else(unknown)),
        ("CPUs", format!("{} ({})", machine.cpus, machine.arch)),
        ("kernel", machine.kernel.clone()),
        ("rseq", machine.backend.clone()),
        ("compiler", machine.rustc.clone()),
        ("commit", machine.commit.clone().unwrap_or_else(unknown)),
        ("date", machine.date.clone()),
    ];
    for name in ["clock", "pinning", "mode"] {
        let value = machine.more.get(name).and_then(|value| value.as_str());
        facts.extend(value.map(|value| (name, value.to_owned())));
    }
    if machine.busy {
        let load = "the bench kept each CPU busy, at the lowest priority (--busy)";
        facts.push(("load", load.to_owned()));
    }
    facts
}

fn table(text: &mut String, record: &Record, definition: &Definition, rows: &[&Row]) {
    paragraph(text, &format!("## {}", definition.title));
    paragraph(text, &definition.about);
    if let Some(document) = &definition.document {
        paragraph(text, &format!("Document: {document}"));
    }
    document(text, record, definition);
    contests(text, record, definition);
    growth(text, record, definition);
    figures(text, definition, rows);
    for note in record.notes(&definition.table) {
        paragraph(text, &note);
    }
    for absent in record.absent.iter().filter(|absent| absent.table == definition.table) {
        paragraph(text, &format!("Not measured: `{}`: {}", absent.variant, absent.reason));
    }
    for (name, said) in [
        ("What a ratio means", &definition.ratio),
        ("How it is measured", &definition.how),
        ("What bounds it", &definition.bounds),
        ("What is unfair in it", &definition.bias),
    ] {
        if !said.is_empty() {
            paragraph(text, &format!("*{name}.* {said}"));
        }
    }
}

/// Writes the document's cells beside our counterparts.
fn document(text: &mut String, record: &Record, definition: &Definition) {
    let cells = &definition.cell;
    if cells.is_empty() {
        return;
    }
    if cells.iter().all(section::is_count) {
        return histogram(text, &Histogram::new(record, definition));
    }
    text.push('\n');
    line(text, &["the document's", "", "× baseline", "ours", "× baseline"]);
    text.push_str("|---|--:|--:|--:|--:|\n");
    for cell in cells {
        let ours = cell.ours.as_ref();
        let row = ours.and_then(|o| record.find(&definition.table, &o.variant, &o.params));
        let theirs = cell.value.map_or_else(dash, |value| amount(value, &cell.unit));
        let their_ratio = section::their_ratio(definition, cell, row).unwrap_or_else(dash);
        let (our_value, our_ratio) = match (row, &cell.reason) {
            (Some(row), _) => {
                let ratio = section::our_ratio(record, definition, row).unwrap_or_else(dash);
                (rows::figure(row), ratio)
            }
            (None, Some(reason)) => (reason.clone(), dash()),
            (None, None) => ("not in this record".to_owned(), dash()),
        };
        let case = match cell.params.0.is_empty() {
            true => cell.variant.clone(),
            false => format!("{} · {}", cell.params, cell.variant),
        };
        line(text, &[&case, &theirs, &their_ratio, &our_value, &our_ratio]);
    }
}

/// Writes a document's histogram and ours, as shares of their columns.
fn histogram(text: &mut String, histogram: &Histogram<'_>) {
    paragraph(text, "The document's histogram, and ours, as shares:");
    text.push('\n');
    let of = |variant: &&str| {
        let columns = histogram.columns.iter();
        columns.map(|column| format!("{variant}, {column}")).collect::<Vec<_>>()
    };
    let mut heading = vec![histogram.buckets.clone()];
    heading.extend(histogram.variants.iter().flat_map(of));
    line(text, &heading.iter().map(String::as_str).collect::<Vec<_>>());
    let _ = writeln!(text, "|---|{}", "--:|".repeat(heading.len() - 1));
    for bucket in &histogram.lines {
        let mut cells = vec![bucket.bucket.to_owned()];
        cells.extend(bucket.shares.iter().flatten().map(Share::text));
        line(text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Writes our rows beside the best of the others'.
fn contests(text: &mut String, record: &Record, definition: &Definition) {
    let bouts = contest::bouts(record, definition);
    if bouts.is_empty() {
        return;
    }
    paragraph(text, &format!("**{}**", contest::TITLE));
    text.push('\n');
    line(text, &contest::HEADING);
    text.push_str("|---|--:|---|--:|--:|---|\n");
    for bout in bouts {
        line(text, &bout.cells().each_ref().map(String::as_str));
    }
}

/// Writes how costs grow.
fn growth(text: &mut String, record: &Record, definition: &Definition) {
    for (place, (heading, lines)) in growth::tables(record, definition).enumerate() {
        if place == 0 {
            paragraph(text, &format!("**{}**", growth::TITLE));
        }
        text.push('\n');
        line(text, &heading.each_ref().map(String::as_str));
        text.push_str("|---|--:|--:|--:|---|---|\n");
        for cells in lines {
            line(text, &cells.each_ref().map(String::as_str));
        }
    }
}

/// Writes all rows that are not histogram buckets; rows with different parameter names go into
/// separate tables.
fn figures(text: &mut String, definition: &Definition, all: &[&Row]) {
    let plain: Vec<&Row> = all.iter().copied().filter(|row| row.unit != "count").collect();
    let mut left = all.len() - plain.len();
    for grid in rows::grids(definition, &plain) {
        if grid.lines.len() > LINES_MAX {
            left += grid.rows;
            continue;
        }
        paragraph(text, &format!("**{}**", capital(&grid.title)));
        text.push('\n');
        line(text, &grid.heading.iter().map(String::as_str).collect::<Vec<_>>());
        let values = grid.heading.len() - grid.params;
        let _ = writeln!(text, "|{}{}", "---|".repeat(grid.params), "--:|".repeat(values));
        for cells in &grid.lines {
            line(text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    if left > 0 {
        paragraph(text, &format!("{left} more rows, such as histograms, are in the record."));
    }
}

fn dash() -> String {
    "–".to_owned()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Writes a paragraph after an empty line.
pub(super) fn paragraph(text: &mut String, words: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "\n{words}");
}

/// Writes a line of a table. An unescaped `|` would end a cell.
pub(super) fn line(text: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(text, "| {} ", cell.replace('|', "\\|"));
    }
    text.push_str("|\n");
}
