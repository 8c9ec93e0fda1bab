//! Reads back what `submeter-bench --json` wrote: reports are made from records, so that those of
//! another machine or another day can be reported too.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::row::{Params, Row};

/// A record: the machine, and what was measured on it.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
    /// The variants that could not be measured, and why.
    #[serde(default)]
    pub(super) absent: Vec<Absent>,
    /// Notes on the tables; each begins with a table's name.
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

/// The machine and build that the figures come from. Fields that only newer records have are kept
/// in `more`.
#[derive(Debug, Deserialize)]
pub(super) struct Machine {
    #[serde(default)]
    pub(super) cpu_model: Option<String>,
    #[serde(default)]
    pub(super) cpu_design: Option<String>,
    pub(super) arch: String,
    pub(super) cpus: u64,
    pub(super) kernel: String,
    pub(super) backend: String,
    #[serde(default)]
    pub(super) busy: bool,
    pub(super) date: String,
    #[serde(default)]
    pub(super) commit: Option<String>,
    #[serde(default)]
    pub(super) rustc: String,
    #[serde(default)]
    pub(super) interrupted: bool,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    #[serde(flatten)]
    pub(super) more: BTreeMap<String, Value>,
}

/// A variant that was not measured.
#[derive(Debug, Deserialize)]
pub(super) struct Absent {
    pub(super) table: String,
    pub(super) variant: String,
    pub(super) reason: String,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// One line that says what is wrong with `text`, and how to make a record.
    pub(crate) fn parse(text: &str) -> Result<Record, String> {
        serde_json::from_str(text).map_err(|error| {
            format!("this is not a record of submeter-bench: {error}; make one with submeter-bench --json FILE")
        })
    }

    /// Returns the rows of `table`, in the order of the record.
    pub(super) fn table<'a>(&'a self, table: &str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.table == table)
    }

    /// Finds the first row of `table` and `variant` that has all of `params`, and may have others.
    pub(super) fn find(&self, table: &str, variant: &str, params: &Params) -> Option<&Row> {
        self.table(table).find(|row| row.variant == variant && row.params.has(params))
    }

    /// Returns the record's notes on `table`.
    pub(super) fn notes(&self, table: &str) -> Vec<String> {
        let of_table =
            |note: &String| Some(note.strip_prefix(table)?.strip_prefix(": ")?.to_owned());
        self.notes.iter().filter_map(of_table).collect()
    }
}

/// Groups rows that have the same key, in the order in which each key first occurs.
pub(super) fn grouped<'a, K: PartialEq>(
    rows: &[&'a Row],
    key: impl Fn(&'a Row) -> K,
) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<(K, Vec<&Row>)> = Vec::new();
    for row in rows {
        let of = key(row);
        match groups.iter_mut().find(|(other, _)| *other == of) {
            Some((_, group)) => group.push(row),
            None => groups.push((of, vec![row])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
