//! Compares files of `submeter-bench --json` by ratios, and reports what became worse beyond the
//! noise.
//!
//! Absolute times differ between machines and from hour to hour; the ratio of a variant to another
//! that was measured alternately with it does not. Definitions name the ratios that must not become
//! worse (`[[gate]]`). A ratio counts as a loss if its whole confidence interval lies beyond the
//! floor in every pair of files: the interval covers noise within a run, the floor covers
//! differences between runs, such as memory layout, and further pairs cover the rest.

mod interval;
pub(crate) mod turns;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use crate::definitions::{self, Definitions};
use interval::{Cell, change};

/// How much worse a ratio may become without being reported: a quarter, because two builds of the
/// same code align loops and cache lines differently. A gate whose ratio varies more between runs
/// has a `floor` of its own.
const FLOOR: f64 = 1.25;
/// The minimum of samples for a meaningful median.
const SAMPLES_MIN: usize = 5;

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// A line for each ratio that became worse, by its name.
    pub(crate) losses: BTreeMap<String, String>,
    /// A line for each ratio whose samples leave room for a loss and for a gain.
    noisy: BTreeMap<String, String>,
    /// Ratios that were compared.
    compared: usize,
    /// Why nothing was compared.
    skipped: Option<String>,
}

impl Verdict {
    /// Keeps the losses that `other` found too, because noise seldom affects the same ratio twice.
    pub(crate) fn and(mut self, other: &Verdict) -> Verdict {
        self.losses.retain(|name, _| other.losses.contains_key(name));
        self.noisy.retain(|name, _| other.noisy.contains_key(name));
        self
    }

    /// Returns the tables that have losses.
    fn tables(&self) -> Vec<String> {
        let mut tables: Vec<String> = self
            .losses
            .keys()
            .filter_map(|name| Some(name.split_once(' ')?.0.to_owned()))
            .collect();
        tables.dedup();
        tables
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.skipped {
            return writeln!(f, "skipped: {why}");
        }
        self.losses.iter().try_for_each(|(name, loss)| writeln!(f, "{name}: {loss}"))?;
        self.noisy.iter().try_for_each(|(name, noise)| writeln!(f, "{name}: {noise}"))?;
        let (compared, worse, noisy) = (self.compared, self.losses.len(), self.noisy.len());
        writeln!(f, "regress: {compared} ratios compared, {worse} worse, {noisy} too noisy to tell")
    }
}

/// Compares each old file with the new one that follows it, and keeps the losses of every pair.
///
/// # Errors
/// One line: a file that cannot be read, or a pair that has no ratio in common.
pub(crate) fn compare_all<P: AsRef<Path>>(files: &[P]) -> Result<Verdict, String> {
    let gates = definitions::read()?;
    let mut found: Option<Verdict> = None;
    for pair in files.chunks_exact(2) {
        let [old, new] = [&pair[0], &pair[1]].map(|file| definitions::record(file.as_ref()));
        let verdict = compare(&old?, &new?, &gates)?;
        found = Some(match found {
            Some(before) => verdict.and(&before),
            None => verdict,
        });
    }
    Ok(found.unwrap_or_default())
}

/// Compares the ratios that `gated_by` gates and both files have.
///
/// # Errors
/// When both files are from the same kind of machine and have no ratio in common, which must not
/// look like a success.
fn compare(old: &Value, new: &Value, gated_by: &Definitions) -> Result<Verdict, String> {
    for name in ["arch", "cpu_model", "cpus", "backend", "busy", "debug_build"] {
        let (was, is) = (&old["machine"][name], &new["machine"][name]);
        if was != is {
            let why =
                format!("{name} was {was} and is {is}: make a record on a machine like this one");
            return Ok(Verdict { skipped: Some(why), ..Verdict::default() });
        }
    }
    let mut verdict = Verdict::default();
    for (table, definition) in gated_by {
        for gate in definitions::list(definition, "gate") {
            gated(table, gate, old, new, &mut verdict);
        }
    }
    if verdict.compared == 0 {
        return Err("no ratio is in both files: measure the tables that the record has".to_owned());
    }
    Ok(verdict)
}

/// Compares each row that `gate` names.
fn gated(table: &str, gate: &toml::Value, old: &Value, new: &Value, verdict: &mut Verdict) {
    let variant = |of: Option<&toml::Value>| -> Option<String> {
        Some(of?.get("variant")?.as_str()?.to_owned())
    };
    let against = gate.get("against");
    let (Some(ours), Some(theirs)) = (variant(Some(gate)), variant(against)) else { return };
    let own = params(gate.get("params"));
    let floor = gate.get("floor").and_then(|floor| floor.as_float()).unwrap_or(FLOOR);
    let other = against.and_then(|against| against.get("params"));
    for row in rows(new, table, &ours).filter(|row| has(row, &own)) {
        let Some(exact) = row["params"].as_object() else { continue };
        // The same parameters, unless the gate names others for the other side.
        let base = other.map_or_else(|| exact.clone(), |_| params(other));
        let cell = |record: &Value, variant: &str, params: &Map<String, Value>| {
            rows(record, table, variant).find(|row| has(row, params)).and_then(cell)
        };
        let (Some(was), Some(was_base), Some(is), Some(is_base)) = (
            cell(old, &ours, exact),
            cell(old, &theirs, &base),
            cell(new, &ours, exact),
            cell(new, &theirs, &base),
        ) else {
            continue;
        };
        verdict.compared += 1;
        let found = change(&was, &was_base, &is, &is_base);
        let name = || format!("{table} {} {ours} ÷ {theirs}", row["params"]);
        if found.low < 1.0 / floor && found.high > floor {
            verdict.noisy.insert(name(), "too noisy".to_owned());
        }
        if found.low > floor {
            let loss = format!(
                "{:.3} in the record, {:.3} now, worse by {:.2} to {:.2} times",
                found.was, found.is, found.low, found.high
            );
            verdict.losses.insert(name(), loss);
        }
    }
}

fn rows<'a>(
    record: &'a Value,
    table: &'a str,
    variant: &'a str,
) -> impl Iterator<Item = &'a Value> {
    let all = record["rows"].as_array().into_iter().flatten();
    all.filter(move |row| row["table"] == table && row["variant"] == variant)
}

/// Returns the parameters of a gate in the form that a record uses.
fn params(of: Option<&toml::Value>) -> Map<String, Value> {
    of.and_then(|of| serde_json::to_value(of).ok()?.as_object().cloned()).unwrap_or_default()
}

fn has(row: &Value, params: &Map<String, Value>) -> bool {
    params.iter().all(|(name, value)| row["params"][name] == *value)
}

/// Returns the measurements of a row. `None` if the row has no better direction, like counts of a
/// histogram, or too few samples.
fn cell(row: &Value) -> Option<Cell> {
    let higher = match row["unit"].as_str()? {
        unit if unit.ends_with("/s") => true,
        "ns" | "us" | "ms" | "bytes" => false,
        _ => return None,
    };
    let samples: Vec<f64> =
        row["samples"].as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    if samples.len() < SAMPLES_MIN || samples.iter().any(|sample| *sample <= 0.0) {
        return None;
    }
    let quantile = match (row["table"].as_str(), row["params"]["quantile"].as_str()) {
        // Only this table keeps individual times; others have one quantile per round.
        (Some("kill"), Some("p99")) => 0.99,
        _ => 0.5,
    };
    Some(Cell { samples, quantile, higher })
}

#[cfg(test)]
mod tests;
