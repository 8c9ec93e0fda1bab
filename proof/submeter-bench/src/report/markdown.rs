//! The report as Markdown, for a repository, which does not display an HTML page.

use std::fmt::Write;

use super::block::{Block, Table};
use super::content;
use super::definition::Definition;
use super::record::Record;

/// Writes the report of `record`.
pub(crate) fn markdown(record: &Record, definitions: &[Definition]) -> String {
    written(&content::report(record, definitions))
}

/// Writes blocks with an empty line between them, except those that are only for the page.
pub(super) fn written(blocks: &[Block<'_>]) -> String {
    let parts: Vec<String> = blocks.iter().filter_map(block).collect();
    parts.join("\n")
}

fn block(block: &Block<'_>) -> Option<String> {
    Some(match block {
        Block::Heading(definition) => format!("## {}\n", definition.title),
        Block::Paragraph(words) => format!("{words}\n"),
        Block::About(name, said) => format!("*{name}.* {said}\n"),
        Block::Caption(words) => format!("**{words}**\n"),
        Block::Table(table) => self::table(table),
        Block::Names(_) | Block::Plots(..) => return None,
    })
}

fn table(table: &Table) -> String {
    let mut text = line(&table.heading);
    for column in table.columns.chars() {
        text.push_str(if column == 'n' { "|--:" } else { "|---" });
    }
    text.push_str("|\n");
    table.lines.iter().for_each(|cells| text.push_str(&line(cells)));
    text
}

/// Writes a line of a table. An unescaped `|` would end a cell.
fn line(cells: &[String]) -> String {
    let mut text = String::new();
    for cell in cells {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "| {} ", cell.replace('|', "\\|"));
    }
    text + "|\n"
}
