//! Checks the definitions of the bench's tables against a record.
//!
//! A definition describes a table's variants and parameters, and names our counterpart of each cell
//! of a document's table. Both become stale when a table changes and its definition does not; the
//! record of one quick run reveals that.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;

/// The files of `proof/submeter-bench/definitions`, by table.
pub(crate) type Definitions = BTreeMap<String, toml::Table>;

/// Reads a file that `submeter-bench --json` wrote; it may have been compressed since.
///
/// # Errors
/// One line that names the file and the remedy.
pub(crate) fn record(path: &Path) -> Result<Value, String> {
    let say = |what: &dyn fmt::Display| {
        let path = path.display();
        format!("{path}: {what}: name a file that submeter-bench --json wrote")
    };
    let text = text_of(path).map_err(|error| say(&error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| say(&error))?;
    if value["machine"].is_object() && value["rows"].is_array() {
        return Ok(value);
    }
    Err(say(&"no machine and rows"))
}

fn text_of(path: &Path) -> io::Result<String> {
    if path.extension().is_none_or(|extension| extension != "zst") {
        return fs::read_to_string(path);
    }
    let file = BufReader::new(File::open(path)?);
    io::read_to_string(StreamingDecoder::new(file).map_err(io::Error::other)?)
}

/// Reads the files of `proof/submeter-bench/definitions`.
///
/// # Errors
/// One line that names the file that cannot be read.
pub(crate) fn read() -> Result<Definitions, String> {
    let folder = crate::workspace_root().join("proof/submeter-bench/definitions");
    let say = |path: &Path, what: &dyn fmt::Display| {
        format!("{}: {what}: see the files beside it", path.display())
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(|error| say(&folder, &error))? {
        let path = entry.map_err(|error| say(&folder, &error))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| say(&path, &error))?;
        let table: toml::Table = text.parse().map_err(|error| say(&path, &error))?;
        let word = |name: &str| table.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        let (name, _) = word("table")
            .zip(word("baseline"))
            .ok_or_else(|| say(&path, &"no table and baseline"))?;
        found.insert(name, table);
    }
    Ok(found)
}

/// Returns the entries of `[[name]]` in a definition.
pub(crate) fn list<'a>(
    definition: &'a toml::Table,
    name: &str,
) -> impl Iterator<Item = &'a toml::Value> {
    definition.get(name).and_then(|list| list.as_array()).into_iter().flatten()
}

/// Returns a line for each row of `record` that no definition explains, and for each cell of a
/// document's table whose named counterpart is missing.
pub(crate) fn findings(definitions: &Definitions, record: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let rows = rows(record);
    for row in &rows {
        let table = row["table"].as_str().unwrap_or_default();
        let Some(definition) = definitions.get(table) else {
            findings.push(format!("{table}: measured, but not defined"));
            continue;
        };
        let knows =
            |list: &str, name: &str| definition.get(list).is_some_and(|l| l.get(name).is_some());
        let variant = row["variant"].as_str().unwrap_or_default();
        if !knows("variants", variant) {
            findings.push(format!("{table}: the variant {variant} has no description"));
        }
        for name in row["params"].as_object().into_iter().flat_map(|params| params.keys()) {
            if !knows("params", name) {
                findings.push(format!("{table}: the parameter {name} has no description"));
            }
        }
    }
    for (table, definition) in definitions {
        let workloads: Vec<Option<&toml::Value>> =
            match list(definition, "answers").map(Some).collect::<Vec<_>>() {
                none if none.is_empty() => vec![None],
                all => all,
            };
        for ours in list(definition, "cell").filter_map(|cell| cell.get("ours")) {
            for workload in &workloads {
                let answered = |row: &Value| {
                    answers(row, table, ours) && workload.is_none_or(|of| has_params(row, of))
                };
                if !rows.iter().any(|row| answered(row)) && !is_absent(record, table, ours) {
                    let of = workload.map_or(String::new(), |of| format!(" for {of}"));
                    findings.push(format!("{table}: no row matches {ours}{of}"));
                }
            }
        }
        if !rows.iter().any(|row| row["table"] == **table) {
            findings.push(format!("{table}: defined, but not measured"));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

fn rows(record: &Value) -> Vec<&Value> {
    record["rows"].as_array().into_iter().flatten().collect()
}

/// Returns whether `row` is the counterpart that a cell names; it may have more parameters than the
/// cell.
fn answers(row: &Value, table: &str, ours: &toml::Value) -> bool {
    row["table"] == table
        && ours.get("variant").and_then(|v| v.as_str()) == row["variant"].as_str()
        && has_params(row, ours)
}

/// Returns whether `row` has the parameters of a cell's counterpart or of a workload.
fn has_params(row: &Value, of: &toml::Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let wanted =
        |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let params = of.get("params").and_then(|params| params.as_table());
    params.into_iter().flatten().all(|(name, value)| text(&row["params"][name]) == wanted(value))
}

/// Returns whether the record gives a reason for the row's absence.
fn is_absent(record: &Value, table: &str, ours: &toml::Value) -> bool {
    let variant = ours.get("variant").and_then(|variant| variant.as_str());
    let absent = record["absent"].as_array();
    absent.into_iter().flatten().any(|a| a["table"] == table && a["variant"].as_str() == variant)
}

#[cfg(test)]
mod tests;
