//! The content of a report, apart from its format: the machine, then a section for each table, the
//! documents' first.

use super::block::{Block, Table};
use super::contest;
use super::definition::Definition;
use super::document;
use super::growth;
use super::record::{Machine, Record};
use super::rows;
use crate::row::Row;

/// Maximum number of rows of a table: longer ones are left out, since in a document they would bury
/// the rest.
const LINES_MAX: usize = 60;

/// Returns the report of `record`, with a section for each definition that it has rows for.
pub(super) fn report<'a>(record: &'a Record, definitions: &'a [Definition]) -> Vec<Block<'a>> {
    let machine = &record.machine;
    let facts = facts(machine).into_iter().map(|(name, value)| [name.to_owned(), value]);
    let mut blocks = vec![Block::Table(Table::new("tt", ["", ""], facts))];
    if machine.interrupted {
        let said = "The run was interrupted: figures come from what was measured until then.";
        blocks.push(Block::Paragraph(said.to_owned()));
    }
    let warnings = machine.warnings.iter().map(|warning| format!("Warning: {warning}"));
    blocks.extend(warnings.map(Block::Paragraph));
    let (documents, own): (Vec<&Definition>, Vec<&Definition>) =
        definitions.iter().partition(|definition| definition.document.is_some());
    let definitions = || documents.iter().chain(&own).copied();
    behind(&mut blocks, record, definitions());
    for definition in definitions() {
        let rows: Vec<&Row> = record.table(&definition.table).collect();
        if !rows.is_empty() {
            section(&mut blocks, record, definition, &rows);
        }
    }
    blocks
}

/// Returns what a reader must know about the machine, with the names of the facts.
pub(super) fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let unknown = || "not recorded".to_owned();
    let design = machine.cpu_design.iter().map(|design| format!(" ({design})"));
    let processor = machine.cpu_model.clone().unwrap_or_else(unknown);
    let mut facts = vec![
        ("processor", processor + &design.collect::<String>()),
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

/// Writes every lost bout of all tables.
fn behind<'a>(
    blocks: &mut Vec<Block<'a>>,
    record: &'a Record,
    definitions: impl Iterator<Item = &'a Definition>,
) {
    let (mut all, mut lost) = (0, Vec::new());
    for definition in definitions {
        for bout in contest::bouts(record, definition) {
            all += 1;
            lost.extend(bout.is_lost().then(|| bout.cells_behind(definition)));
        }
    }
    if all > 0 {
        blocks.push(Block::Caption(contest::BEHIND.to_owned()));
        blocks.push(Block::Paragraph(contest::behind(lost.len(), all)));
    }
    if !lost.is_empty() {
        blocks.push(Block::Table(Table::new("ttntnn", contest::HEADING_BEHIND, lost)));
    }
}

fn section<'a>(
    blocks: &mut Vec<Block<'a>>,
    record: &'a Record,
    definition: &'a Definition,
    rows: &[&'a Row],
) {
    blocks.push(Block::Heading(definition));
    blocks.push(Block::Paragraph(definition.about.clone()));
    let document = definition.document.iter().map(|document| format!("Document: {document}"));
    blocks.extend(document.map(Block::Paragraph));
    document::cells(blocks, record, definition);
    contests(blocks, record, definition);
    for (place, (heading, lines)) in growth::tables(record, definition).enumerate() {
        if place == 0 {
            blocks.push(Block::Caption(growth::TITLE.to_owned()));
        }
        let heading = heading.each_ref().map(String::as_str);
        blocks.push(Block::Table(Table::new("tnnntt", heading, lines)));
    }
    figures(blocks, definition, rows);
    blocks.extend(record.notes(&definition.table).into_iter().map(Block::Paragraph));
    for absent in record.absent.iter().filter(|absent| absent.table == definition.table) {
        let said = format!("Not measured: `{}`: {}", absent.variant, absent.reason);
        blocks.push(Block::Paragraph(said));
    }
    for (name, said) in [
        ("What a ratio means", &definition.ratio),
        ("How it is measured", &definition.how),
        ("What bounds it", &definition.bounds),
        ("What is unfair in it", &definition.bias),
    ] {
        if !said.is_empty() {
            blocks.push(Block::About(name, said));
        }
    }
    blocks.push(Block::Names(definition));
}

/// Writes our rows beside the best of the others'.
fn contests(blocks: &mut Vec<Block<'_>>, record: &Record, definition: &Definition) {
    let bouts = contest::bouts(record, definition);
    if !bouts.is_empty() {
        blocks.push(Block::Caption(contest::TITLE.to_owned()));
        let lines = bouts.iter().map(contest::Bout::cells);
        blocks.push(Block::Table(Table::new("tntnnt", contest::HEADING, lines)));
    }
}

/// Writes all rows except histogram buckets; rows with different parameter names go into separate
/// tables. Rows that are in no table are plotted all the same.
fn figures<'a>(blocks: &mut Vec<Block<'a>>, definition: &'a Definition, rows: &[&'a Row]) {
    let mut left = 0;
    let mut untold = Vec::new();
    for group in rows::groups(rows) {
        let grid = rows::grid(definition, &group);
        if grid.lines.len() > LINES_MAX || group[0].unit == "count" {
            left += group.len();
            untold.push(Block::Plots(definition, group));
            continue;
        }
        let values = grid.heading.len() - grid.params;
        let columns = "t".repeat(grid.params) + &"n".repeat(values);
        blocks.push(Block::Caption(capital(&grid.title)));
        blocks.push(Block::Table(Table { columns, heading: grid.heading, lines: grid.lines }));
        blocks.push(Block::Plots(definition, group));
    }
    if left > 0 {
        let said = format!("{left} more rows, such as histograms, are in the record.");
        blocks.push(Block::Paragraph(said));
    }
    blocks.extend(untold);
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
