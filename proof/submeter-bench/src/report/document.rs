//! A document's cells beside our counterparts.

use super::block::{Block, Table};
use super::definition::{Cell, Definition};
use super::format::{amount, is_time, times};
use super::histogram;
use super::plots::BUCKET;
use super::record::Record;
use super::rows;
use crate::row::Row;

const HEADING: [&str; 5] = ["the document's", "", "× baseline", "ours", "× baseline"];

/// Writes the table of a definition's cells, if it has any.
pub(super) fn cells(blocks: &mut Vec<Block<'_>>, record: &Record, definition: &Definition) {
    let cells = &definition.cell;
    if cells.is_empty() {
        return;
    }
    if cells.iter().all(is_count) {
        let words = "The document's histogram, and ours, as shares:";
        blocks.push(Block::Paragraph(words.to_owned()));
        blocks.push(Block::Table(histogram::table(record, definition)));
        return;
    }
    let lines = cells.iter().map(|cell| line(record, definition, cell));
    blocks.push(Block::Table(Table::new("tnnnn", HEADING, lines)));
}

fn line(record: &Record, definition: &Definition, cell: &Cell) -> [String; 5] {
    let dash = || "–".to_owned();
    let ours = cell.ours.as_ref();
    let row = ours.and_then(|o| record.find(&definition.table, &o.variant, &o.params));
    let theirs = cell.value.map_or_else(dash, |value| amount(value, &cell.unit));
    let their_ratio = their_ratio(definition, cell, row).unwrap_or_else(dash);
    let (our_value, our_ratio) = match (row, &cell.reason) {
        (Some(row), _) => {
            let base = record.find(&definition.table, &definition.baseline, &row.params);
            let ratio = base.and_then(|base| rows::verdict(row, base));
            (rows::figure(row), ratio.unwrap_or_else(dash))
        }
        (None, Some(reason)) => (reason.clone(), dash()),
        (None, None) => ("not in this record".to_owned(), dash()),
    };
    let case = match cell.params.0.is_empty() {
        true => cell.variant.clone(),
        false => format!("{} · {}", cell.params, cell.variant),
    };
    [case, theirs, their_ratio, our_value, our_ratio]
}

/// Returns whether a cell is a bucket of a histogram.
fn is_count(cell: &Cell) -> bool {
    cell.unit == "count" || cell.ours.as_ref().is_some_and(|o| o.params.get(BUCKET).is_some())
}

/// Returns the ratio of the document's cell to its baseline; some documents give nothing else.
fn their_ratio(definition: &Definition, cell: &Cell, ours: Option<&Row>) -> Option<String> {
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

/// Writes a ratio. `None` if the base is zero.
fn ratio(value: f64, base: f64) -> Option<String> {
    Some(value / base).filter(|ratio| ratio.is_finite()).map(times)
}
