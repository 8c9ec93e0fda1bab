//! The meaning of a table: its document, its variants and its limits, which a record does not
//! contain.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::row::Params;

/// A table's definition, as stored in `proof/submeter-bench/definitions`. The fields are named as
/// in its files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub(super) table: String,
    /// Its heading.
    pub(super) title: String,
    /// The source document; `None` for our own tables.
    pub(super) document: Option<String>,
    pub(super) about: String,
    /// The variant that others are compared with.
    pub(super) baseline: String,
    /// `higher` or `lower`.
    pub(super) better: String,
    /// The meaning of a ratio.
    pub(super) ratio: String,
    pub(super) how: String,
    pub(super) bounds: String,
    pub(super) bias: String,
    pub(super) params: BTreeMap<String, About>,
    pub(super) variants: BTreeMap<String, About>,
    pub(super) cell: Vec<Cell>,
    /// The workloads that answer the cells. Empty if there is only one.
    pub(super) answers: Vec<Answer>,
    pub(super) contest: Vec<Contest>,
    pub(super) gate: Vec<Gate>,
    pub(super) growth: Vec<Growth>,
}

/// The tables in reading order: those of documents, from the smallest part to the whole.
const ORDER: [&str; 13] = [
    "rcuref",
    "percpu_ref",
    "percpu_counter",
    "rstat",
    "perf",
    "kill",
    "count",
    "limits",
    "groups",
    "end_to_end",
    "neighbours",
    "worlds",
    "alloc",
];

/// Returns all definitions in the order of a report.
///
/// # Panics
/// When a file of `proof/submeter-bench/definitions` is invalid. The files are compiled in, and a
/// test reads them all.
pub(crate) fn definitions() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| {
        let parse = |text: &&str| Definition::parse(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let mut all: Vec<Definition> = TEXTS.iter().map(parse).collect();
        let place =
            |table: &str| ORDER.iter().position(|name| *name == table).unwrap_or(ORDER.len());
        all.sort_by_key(|definition| place(&definition.table));
        all
    });
    &ALL
}

/// Returns the definition of a table.
///
/// # Panics
/// When there is none. A test looks up every table that can be measured.
#[cfg(test)]
pub(crate) fn definition(table: &str) -> &'static Definition {
    let found = definitions().iter().find(|definition| definition.table == table);
    found.unwrap_or_else(|| panic!("no proof/submeter-bench/definitions/{table}.toml"))
}

/// The files of `proof/submeter-bench/definitions`, which the build script collects.
pub(super) const TEXTS: &[&str] = include!(concat!(env!("OUT_DIR"), "/definitions.rs"));

impl Definition {
    /// Returns whether these variants, measured alternately with these parameters, are compared:
    /// with the baseline, or by a contest of their own.
    #[cfg(test)]
    pub(crate) fn compares(
        &self,
        variants: &std::collections::HashSet<&str>,
        params: &Params,
    ) -> bool {
        let has = |variant: &String| variants.contains(variant.as_str());
        let contested = |one: &Contest| {
            params.has(&one.params) && has(&one.variant) && one.against.iter().any(has)
        };
        has(&self.baseline) || self.contest.iter().any(contested)
    }

    /// Reads a file of `proof/submeter-bench/definitions`.
    ///
    /// # Errors
    /// One line that says where the file is invalid.
    pub(super) fn parse(text: &str) -> Result<Definition, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }
}

/// The description of a parameter or a variant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    pub(super) about: String,
    pub(super) unit: Option<String>,
    /// Whether a variant is measured only with the feature `peers`.
    pub(super) peer: bool,
}

/// A cell of the document's table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cell {
    pub(super) params: Params,
    pub(super) variant: String,
    pub(super) value: Option<f64>,
    pub(super) unit: String,
    pub(super) ours: Option<Ours>,
    /// Why there is no counterpart here.
    pub(super) reason: Option<String>,
}

/// A workload of ours that answers the document's cells.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(super) name: String,
    /// The parameters that its rows have in addition to those of [`Ours`].
    pub(super) params: Params,
}

/// Rows that are compared with the best of some others, whichever is ahead.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Contest {
    pub(super) params: Params,
    pub(super) variant: String,
    pub(super) against: Vec<String>,
}

/// Rows that show how a cost grows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Growth {
    pub(super) params: Params,
    /// The parameter that is the size.
    pub(super) by: String,
    /// The first one is ours.
    pub(super) variants: Vec<String>,
}

/// Rows whose ratio to others must not become worse.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gate {
    pub(super) params: Params,
    pub(super) variant: String,
    pub(super) against: Against,
    /// How much worse the ratio may become, if it varies more than others between runs.
    pub(super) floor: Option<f64>,
}

/// The other side of a [`Gate`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Against {
    pub(super) variant: String,
    /// `None` for the parameters of the gated row.
    pub(super) params: Option<Params>,
}

/// Our counterpart of a cell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ours {
    pub(super) params: Params,
    pub(super) variant: String,
}
