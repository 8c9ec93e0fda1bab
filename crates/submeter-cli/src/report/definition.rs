//! What a table means: its document, its variants and what bounds it. The figures of a record say
//! none of this.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::record::Params;

/// A table's definition, as `bench/definitions` has it. The fields' names are those of its files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub(super) table: String,
    /// Its heading.
    pub(super) title: String,
    /// The source document; none for tables of our own.
    pub(super) document: Option<String>,
    pub(super) about: String,
    /// The variant that others are compared with.
    pub(super) baseline: String,
    /// `higher` or `lower`.
    pub(super) better: String,
    /// What a ratio means.
    pub(super) ratio: String,
    pub(super) how: String,
    pub(super) bounds: String,
    pub(super) bias: String,
    /// `scaling`, `bars`, `box` or `histogram`.
    pub(super) plot: String,
    pub(super) params: BTreeMap<String, About>,
    pub(super) variants: BTreeMap<String, About>,
    pub(super) cell: Vec<Cell>,
}

/// The tables of documents, in the order in which people read them: from the smallest part to the whole.
const ORDER: [&str; 9] = [
    "rcuref",
    "percpu_ref",
    "percpu_counter",
    "rstat",
    "perf",
    "kill",
    "count",
    "groups",
    "end_to_end",
];

/// Returns all definitions in the order of a report. A file that is wrong is left out: its table is
/// shown without words then, and a test names it.
pub(crate) fn definitions() -> Vec<Definition> {
    let mut all: Vec<Definition> =
        TEXTS.iter().filter_map(|text| Definition::parse(text).ok()).collect();
    let place = |table: &str| ORDER.iter().position(|name| *name == table).unwrap_or(ORDER.len());
    all.sort_by_key(|definition| place(&definition.table));
    all
}

/// The files of `bench/definitions`, which the build script collects.
pub(super) const TEXTS: &[&str] = include!(concat!(env!("OUT_DIR"), "/definitions.rs"));

impl Definition {
    /// Reads a file of `bench/definitions`.
    ///
    /// # Errors
    /// One line that says where the file is wrong.
    pub(super) fn parse(text: &str) -> Result<Definition, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }
}

/// What a parameter or a variant is.
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

/// The row that answers a cell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ours {
    pub(super) params: Params,
    pub(super) variant: String,
}
