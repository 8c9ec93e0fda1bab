//! A section for each table: the document's cells beside ours, plots, how it was measured.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::definition::{Cell, Definition};
use super::format::{amount, is_time, times};
use super::plots::BUCKET;
use super::record::Record;
use super::{anchor, contest, growth as grows, histogram, plots, rows};
use crate::row::Row;

/// Writes the section of `definition`.
pub(super) fn section(record: &Record, definition: &Definition) -> Markup {
    let table = definition.table.as_str();
    let rows: Vec<&Row> = record.table(table).collect();
    let id = anchor(table);
    html! {
        section class="table" id=(id) aria-labelledby=(format!("{id}-title")) {
            h2 id=(format!("{id}-title")) { (definition.title) " " small { (table) } }
            p { (definition.about) }
            @if let Some(document) = &definition.document {
                p class="small" { "Document: " (document) }
            }
            @if rows.is_empty() {
                p class="missing" {
                    "This record has no figures of this table. To measure it: "
                    code { "submeter-bench " (table) " --json FILE" } "."
                }
            }
            (remarks(record, table))
            @if !definition.cell.is_empty() { (document(record, definition)) }
            (contests(record, definition))
            (growth(record, definition))
            (plots::plots(definition, record, &rows))
            (rows::tables(definition, &rows))
            (prose(definition))
            (variants(definition, &rows))
            (absent(record, table))
        }
    }
}

/// Writes the section of a table without a definition, so that nothing in a record is lost.
pub(super) fn undefined(record: &Record, table: &str) -> Markup {
    let definition = Definition {
        table: table.to_owned(),
        title: table.replace('_', " "),
        about: "This record has figures of a table that this version of submeter does not know."
            .to_owned(),
        ..Definition::default()
    };
    section(record, &definition)
}

/// Writes the record's notes on the table, and the warnings about its figures.
fn remarks(record: &Record, table: &str) -> Markup {
    let of_table = |warning: &&String| warning.starts_with(&format!("{table}: "));
    html! {
        @for warning in record.machine.warnings.iter().filter(of_table) {
            p class="warning" { strong { "Warning. " } (warning) }
        }
        @for note in record.notes(table) { p class="small" { (note) } }
    }
}

/// Writes the document's table next to ours.
fn document(record: &Record, definition: &Definition) -> Markup {
    if definition.cell.iter().all(is_count) {
        return histogram::table(record, definition);
    }
    html! {
        h3 { "The document's table, and ours" }
        p class="small" {
            "What a ratio means: " (definition.ratio)
            @if !definition.baseline.is_empty() { " (Baseline: " (definition.baseline) ".)" }
        }
        div class="scroll" tabindex="0" role="region" aria-label="The document's table" {
            table class="document" {
                thead { tr {
                    th scope="col" { "case" }
                    th scope="col" { "document" }
                    th scope="col" { "×\u{a0}baseline" }
                    th scope="col" { "ours" }
                    th scope="col" { "×\u{a0}baseline" }
                    th scope="col" { "our row" }
                } }
                tbody { @for cell in &definition.cell { (line(record, definition, cell)) } }
            }
        }
    }
}

/// Writes our rows beside the best of the others'.
fn contests(record: &Record, definition: &Definition) -> Markup {
    let bouts = contest::bouts(record, definition);
    html! {
        @if !bouts.is_empty() {
            h3 { (contest::TITLE) }
            div class="scroll" tabindex="0" role="region" aria-label=(contest::TITLE) {
                table {
                    thead { tr { @for heading in contest::HEADING { th scope="col" { (heading) } } } }
                    tbody { @for bout in &bouts { tr {
                        @for (place, cell) in bout.cells().iter().enumerate() {
                            @match place {
                                0 => { th scope="row" { (cell) } }
                                1 | 3 | 4 => { td class="n" { (cell) } }
                                _ => { td { (cell) } }
                            }
                        }
                    } } }
                }
            }
        }
    }
}

fn growth(record: &Record, definition: &Definition) -> Markup {
    html! {
        @for (place, (heading, lines)) in grows::tables(record, definition).enumerate() {
            @if place == 0 { h3 { (grows::TITLE) } }
            div class="scroll" tabindex="0" role="region" aria-label=(heading[0]) {
                table {
                    thead { tr { @for name in &heading { th scope="col" { (name) } } } }
                    tbody { @for cells in &lines { tr {
                        @for (place, cell) in cells.iter().enumerate() {
                            @match place {
                                0 => { th scope="row" { (cell) } }
                                1..=3 => { td class="n" { (cell) } }
                                _ => { td { (cell) } }
                            }
                        }
                    } } }
                }
            }
        }
    }
}

fn line(record: &Record, definition: &Definition, cell: &Cell) -> Markup {
    let ours = cell.ours.as_ref();
    let row = ours.and_then(|ours| record.find(&definition.table, &ours.variant, &ours.params));
    let theirs_ratio = their_ratio(definition, cell, row);
    html! {
        tr {
            th scope="row" {
                @if !cell.params.0.is_empty() { (cell.params) " · " }
                (cell.variant)
            }
            td class="n" {
                @if let Some(value) = cell.value {
                    data value=(value) { (amount(value, &cell.unit)) }
                } @else { "–" }
            }
            td class="n" { (theirs_ratio.unwrap_or_else(|| "–".to_owned())) }
            @match (row, ours) {
                (Some(row), _) => {
                    td class="n" { (rows::value(row)) }
                    td class="n" { (our_ratio(record, definition, row).unwrap_or_else(|| "–".to_owned())) }
                    td { (row.params) " · " (row.variant) }
                }
                (None, Some(ours)) => {
                    td class="missing" colspan="2" { "not in this record" }
                    td { (ours.params) " · " (ours.variant) }
                }
                (None, None) => {
                    td colspan="3" { (cell.reason.as_deref().unwrap_or("no counterpart, and no reason given")) }
                }
            }
        }
    }
}

/// Returns whether a cell is a bucket of a histogram.
pub(super) fn is_count(cell: &Cell) -> bool {
    cell.unit == "count" || cell.ours.as_ref().is_some_and(|o| o.params.get(BUCKET).is_some())
}

/// Returns the ratio of the document's cell to its baseline; some documents give only that.
pub(super) fn their_ratio(
    definition: &Definition,
    cell: &Cell,
    ours: Option<&Row>,
) -> Option<String> {
    let value = cell.value?;
    if matches!(cell.unit.as_str(), "x" | "×") {
        return Some(times(value));
    }
    let is_base = |other: &&Cell| {
        let by_ours = match (&other.ours, &cell.ours) {
            (Some(base), Some(own)) => {
                base.params == own.params && base.variant == definition.baseline
            }
            _ => false,
        };
        by_ours || (other.params == cell.params && other.variant == definition.baseline)
    };
    let base = definition.cell.iter().find(is_base).filter(|base| base.unit == cell.unit)?;
    // Half the time is twice the rate, so that ratios side by side mean the same thing.
    let unit = cell.unit.split(' ').next().unwrap_or_default();
    if is_time(unit) && ours.is_some_and(|row| row.unit.ends_with("/s")) {
        return Some(format!("{} as a rate", ratio(base.value?, value)?));
    }
    ratio(value, base.value?)
}

/// Returns the ratio of our row to its baseline.
pub(super) fn our_ratio(record: &Record, definition: &Definition, row: &Row) -> Option<String> {
    rows::verdict(row, record.find(&definition.table, &definition.baseline, &row.params)?)
}

/// Writes a ratio. `None` if the base is zero.
fn ratio(value: f64, base: f64) -> Option<String> {
    Some(value / base).filter(|ratio| ratio.is_finite()).map(times)
}

/// Writes how the table was measured, what bounds it, and what is unfair in it.
fn prose(definition: &Definition) -> Markup {
    let parts = [
        ("How it is measured", &definition.how),
        ("What bounds it", &definition.bounds),
        ("What is unfair in it, and to whom", &definition.bias),
    ];
    let ratio = definition.cell.is_empty().then_some(("What a ratio means", &definition.ratio));
    html! {
        div class="prose" {
            @for (heading, text) in parts.iter().chain(&ratio).filter(|(_, text)| !text.is_empty()) {
                div { h3 { (heading) } p { (text) } }
            }
        }
    }
}

/// Writes the descriptions of the variants and parameters.
fn variants(definition: &Definition, rows: &[&Row]) -> Markup {
    let measured: BTreeSet<&str> = rows.iter().map(|row| row.variant.as_ref()).collect();
    html! {
        @if !definition.variants.is_empty() || !definition.params.is_empty() {
            details {
                summary { "Variants and parameters" }
                dl {
                    @for (name, about) in &definition.variants {
                        dt {
                            (name)
                            @if about.peer { " " small { "peer" } }
                            @if !measured.contains(name.as_str()) { " " small class="missing" { "not in this record" } }
                        }
                        dd { (about.about) }
                    }
                    @for (name, about) in &definition.params {
                        dt {
                            (name.replace('_', " "))
                            @if let Some(unit) = &about.unit { " " small { (unit) } }
                        }
                        dd { (about.about) }
                    }
                }
            }
        }
    }
}

/// Lists the variants that could not be measured, and why.
fn absent(record: &Record, table: &str) -> Markup {
    let absent: Vec<_> = record.absent.iter().filter(|absent| absent.table == table).collect();
    html! {
        @if !absent.is_empty() {
            h3 { "Not measured" }
            ul { @for absent in absent { li { strong { (absent.variant) } ": " (absent.reason) } } }
        }
    }
}
