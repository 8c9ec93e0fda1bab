//! The parts that a report consists of.

use super::definition::Definition;
use crate::row::Row;

/// A part of a report.
pub(super) enum Block<'a> {
    /// The heading of a table's section.
    Heading(&'a Definition),
    Paragraph(String),
    /// A paragraph that begins with its subject.
    About(&'static str, &'a str),
    /// What the next table or plot shows.
    Caption(String),
    Table(Table),
    /// The meaning of the names of variants and parameters; only for the page, like plots.
    Names(&'a Definition),
    /// Rows to be plotted.
    Plots(&'a Definition, Vec<&'a Row>),
}

/// A table of cells.
pub(super) struct Table {
    /// A letter for each column: `t` for text, `n` for numbers.
    pub(super) columns: String,
    pub(super) heading: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with that many columns.
    pub(super) fn new<const N: usize>(
        columns: &str,
        heading: [&str; N],
        lines: impl IntoIterator<Item = [String; N]>,
    ) -> Table {
        Table {
            columns: columns.to_owned(),
            heading: heading.map(str::to_owned).to_vec(),
            lines: lines.into_iter().map(Vec::from).collect(),
        }
    }
}
