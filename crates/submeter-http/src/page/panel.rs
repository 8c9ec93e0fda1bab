//! Tables of things that are not in the tree, such as the leases of its limits.

use std::fmt::Write;
use std::sync::Arc;

use submeter::export::Format;

use super::wire::{CellDoc, ColumnDoc, ColumnKind, PanelDoc};

type Rows = Arc<dyn Fn() -> Vec<Vec<CellDoc>> + Send + Sync>;

/// A table that a program declares. It stands below the groups on the page and is part of
/// `/api/tree`. Its figures are also metrics, with the labels of their row.
///
/// The rows are made each time they are looked at, at most once a second for all pages, and making
/// them must not wait for anything. For a figure that each group has, declare a metric of the tree
/// and a [`View`](crate::View).
///
/// # Examples
/// ```
/// use submeter_http::wire::{CellDoc, Shape};
/// use submeter_http::{Column, Panel};
///
/// let disks = Panel::new("disk", "Disks", vec![
///     Column::label("disk", "Disk"),
///     Column::state("state", "State", "How it is", &["good", "slow"]),
///     Column::gauge("free", "Free", "Bytes that are free"),
/// ]);
/// let disks = disks.rows(|| {
///     vec![vec!["sda".into(), "slow".into(), CellDoc::figure(4096, Shape::Bytes)]]
/// });
/// # drop(disks);
/// ```
#[derive(Clone)]
pub struct Panel {
    key: String,
    title: String,
    columns: Vec<ColumnDoc>,
    rows: Rows,
}

/// A column of a [`Panel`].
#[derive(Clone, Debug)]
pub struct Column(ColumnDoc);

impl Column {
    fn new(kind: ColumnKind, key: &str, title: &str, help: &str) -> Column {
        let [key, title, help] = [key, title, help].map(str::to_owned);
        Column(ColumnDoc { key, title, help, kind, states: Vec::new() })
    }

    /// Declares a column that tells rows apart: a label of the metrics of each row.
    #[must_use]
    pub fn label(key: &str, title: &str) -> Column {
        Column::new(ColumnKind::Label, key, title, "")
    }

    /// Declares a column with one of these texts. All but the first deserve attention.
    #[must_use]
    pub fn state(key: &str, title: &str, help: &str, states: &[&str]) -> Column {
        let mut column = Column::new(ColumnKind::State, key, title, help);
        column.0.states = states.iter().map(|&state| state.to_owned()).collect();
        column
    }

    /// Declares a column with a number that goes up and down.
    #[must_use]
    pub fn gauge(key: &str, title: &str, help: &str) -> Column {
        Column::new(ColumnKind::Gauge, key, title, help)
    }

    /// Declares a column with a number that only grows.
    #[must_use]
    pub fn counter(key: &str, title: &str, help: &str) -> Column {
        Column::new(ColumnKind::Counter, key, title, help)
    }

    /// Declares a column with any text, which is not a metric.
    #[must_use]
    pub fn text(key: &str, title: &str) -> Column {
        Column::new(ColumnKind::Text, key, title, "")
    }
}

impl Panel {
    /// Declares a table without rows. In the names of metrics, `key` stands between the program's
    /// name and the column's. It and the keys of columns consist of ASCII letters, digits and `_`.
    #[must_use]
    pub fn new(key: &str, title: &str, columns: Vec<Column>) -> Panel {
        let (key, title) = (key.to_owned(), title.to_owned());
        let columns = columns.into_iter().map(|column| column.0).collect();
        Panel { key, title, columns, rows: Arc::new(Vec::new) }
    }

    /// Sets the function that makes the rows, each with a cell for each column.
    #[must_use]
    pub fn rows(self, rows: impl Fn() -> Vec<Vec<CellDoc>> + Send + Sync + 'static) -> Panel {
        Panel { rows: Arc::new(rows), ..self }
    }

    pub(super) fn doc(&self) -> PanelDoc {
        let (key, title) = (self.key.clone(), self.title.clone());
        PanelDoc { key, title, columns: self.columns.clone(), rows: (self.rows)() }
    }
}

impl std::fmt::Debug for Panel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Panel").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Appends the figures of panels to an exposition of the tree.
pub(super) fn expose(panels: &[Panel], prefix: &str, format: Format, text: &mut String) {
    const END: &str = "# EOF\n";
    let ends = text.ends_with(END);
    if ends {
        text.truncate(text.len() - END.len());
    }
    for doc in panels.iter().map(Panel::doc) {
        for (at, column) in doc.columns.iter().enumerate() {
            let name = format!("{prefix}_{}_{}", doc.key, column.key);
            // Writing to a String cannot fail.
            let _ = family(&doc, at, &name, format, text);
        }
    }
    if ends {
        text.push_str(END);
    }
}

fn family(
    doc: &PanelDoc,
    at: usize,
    name: &str,
    format: Format,
    text: &mut String,
) -> std::fmt::Result {
    let column = &doc.columns[at];
    let is_open = format == Format::OpenMetrics;
    let (kind, suffix) = match column.kind {
        ColumnKind::Label | ColumnKind::Text => return Ok(()),
        ColumnKind::State => (if is_open { "stateset" } else { "gauge" }, ""),
        ColumnKind::Gauge => ("gauge", ""),
        ColumnKind::Counter => ("counter", "_total"),
    };
    let family = format!("{name}{}", if is_open { "" } else { suffix });
    writeln!(text, "# TYPE {family} {kind}\n# HELP {family} {}", escaped(&column.help))?;
    for row in &doc.rows {
        let mut labels = Vec::new();
        for (column, cell) in doc.columns.iter().zip(row) {
            if let (ColumnKind::Label, CellDoc::Text(value)) = (column.kind, cell) {
                labels.push(format!("{}=\"{}\"", column.key, escaped(value)));
            }
        }
        let labels = labels.join(",");
        match row.get(at) {
            Some(CellDoc::Figure { value, .. }) => {
                if let Some(value) = value.0 {
                    writeln!(text, "{name}{suffix}{{{labels}}} {value}")?;
                }
            }
            Some(CellDoc::Text(now)) => {
                for state in &column.states {
                    let is = u8::from(state == now);
                    let comma = if labels.is_empty() { "" } else { "," };
                    let state = escaped(state);
                    writeln!(text, "{name}{{{labels}{comma}{name}=\"{state}\"}} {is}")?;
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// Escapes text for a label's value or a line of help.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
