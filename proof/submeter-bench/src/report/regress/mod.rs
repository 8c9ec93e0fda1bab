//! Compares records by ratios, and reports what became worse beyond the
//! noise.
//!
//! Absolute times differ between machines and from hour to hour; the ratio of a variant to another
//! that was measured alternately with it does not. Definitions name the ratios that must not become
//! worse (`[[gate]]`). A ratio counts as a loss if its whole confidence interval lies beyond the
//! floor in every pair of records: the interval covers noise within a run, the floor covers
//! differences between runs, such as memory layout, and further pairs cover the rest.

mod interval;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::definition::{Definition, Gate};
use super::record::{Machine, Record};
use crate::row::{Params, Row};
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
    losses: BTreeMap<String, String>,
    /// A line for each ratio whose samples leave room for a loss and for a gain.
    noisy: BTreeMap<String, String>,
    /// Ratios that were compared.
    compared: usize,
    /// Why nothing was compared.
    skipped: Option<String>,
    /// The commit that made the first record.
    commit: Option<String>,
}

impl Verdict {
    /// Keeps the losses that `other` found too, because noise seldom affects the same ratio twice.
    pub(crate) fn and(mut self, other: &Verdict) -> Verdict {
        self.losses.retain(|name, _| other.losses.contains_key(name));
        self.noisy.retain(|name, _| other.noisy.contains_key(name));
        self
    }

    /// Returns whether a ratio became worse.
    pub(crate) fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Returns the tables that have losses.
    fn tables(&self) -> BTreeSet<&str> {
        self.losses.keys().filter_map(|name| Some(name.split_once(' ')?.0)).collect()
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
        writeln!(
            f,
            "regress: {compared} ratios compared, {worse} worse, {noisy} too noisy to tell"
        )?;
        if worse == 0 {
            return Ok(());
        }
        // As `cargo xtask regress` reads it.
        let tables: Vec<&str> = self.tables().into_iter().collect();
        let commit = self.commit.as_deref().unwrap_or("unknown");
        writeln!(f, "worse than {commit}: {}", tables.join(" "))
    }
}

/// Compares each old record with the new one that follows it, and keeps the losses of every pair.
///
/// # Errors
/// One line: a pair that has no ratio in common.
pub(crate) fn regress(records: &[Record], definitions: &[Definition]) -> Result<Verdict, String> {
    let mut found: Option<Verdict> = None;
    for pair in records.chunks_exact(2) {
        let verdict = compare(&pair[0], &pair[1], definitions)?;
        found = Some(match found {
            Some(before) => verdict.and(&before),
            None => verdict,
        });
    }
    let commit = records.first().and_then(|record| record.machine.commit.clone());
    Ok(Verdict { commit, ..found.unwrap_or_default() })
}

/// Compares the ratios that the definitions gate and both records have.
///
/// # Errors
/// When both records are from the same kind of machine and have no ratio in common, which must not
/// look like a success.
fn compare(old: &Record, new: &Record, definitions: &[Definition]) -> Result<Verdict, String> {
    for ((name, was), (_, is)) in kind(&old.machine).into_iter().zip(kind(&new.machine)) {
        if was != is {
            let why =
                format!("{name} was {was} and is {is}: make a record on a machine like this one");
            return Ok(Verdict { skipped: Some(why), ..Verdict::default() });
        }
    }
    let mut verdict = Verdict::default();
    for definition in definitions {
        for gate in &definition.gate {
            gated(&definition.table, gate, old, new, &mut verdict);
        }
    }
    if verdict.compared == 0 {
        return Err("no ratio is in both files: measure the tables that the record has".to_owned());
    }
    Ok(verdict)
}

/// Returns what must be the same for figures to be compared.
fn kind(machine: &Machine) -> [(&'static str, String); 6] {
    let debug = machine.more.get("debug_build").and_then(serde_json::Value::as_bool);
    [
        ("arch", machine.arch.clone()),
        ("cpu_model", machine.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("cpus", machine.cpus.to_string()),
        ("backend", machine.backend.clone()),
        ("busy", machine.busy.to_string()),
        ("debug_build", debug.unwrap_or_default().to_string()),
    ]
}

/// Compares each row that `gate` names.
fn gated(table: &str, gate: &Gate, old: &Record, new: &Record, verdict: &mut Verdict) {
    let floor = gate.floor.unwrap_or(FLOOR);
    let ours = new.table(table).filter(|row| row.variant == gate.variant);
    for row in ours.filter(|row| row.params.has(&gate.params)) {
        // The same parameters, unless the gate names others for the other side.
        let base = gate.against.params.as_ref().unwrap_or(&row.params);
        let cell = |record: &Record, variant: &str, params: &Params| {
            record.find(table, variant, params).and_then(cell)
        };
        let (Some(was), Some(was_base), Some(is), Some(is_base)) = (
            cell(old, &gate.variant, &row.params),
            cell(old, &gate.against.variant, base),
            cell(new, &gate.variant, &row.params),
            cell(new, &gate.against.variant, base),
        ) else {
            continue;
        };
        verdict.compared += 1;
        let found = change(&was, &was_base, &is, &is_base);
        let name =
            || format!("{table} {}: {} ÷ {}", row.params, gate.variant, gate.against.variant);
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

/// Returns the measurements of a row. `None` if the row has no better direction, like counts of a
/// histogram, or too few samples.
fn cell(row: &Row) -> Option<Cell> {
    let higher = match &*row.unit {
        unit if unit.ends_with("/s") => true,
        "ns" | "us" | "ms" | "bytes" => false,
        _ => return None,
    };
    let samples = row.samples.clone();
    if samples.len() < SAMPLES_MIN || samples.iter().any(|sample| *sample <= 0.0) {
        return None;
    }
    let quantile = match (&*row.table, row.params.get("quantile")) {
        // Only this table keeps individual times; others have one quantile per round.
        ("kill", Some("p99")) => 0.99,
        _ => 0.5,
    };
    Some(Cell { samples, quantile, higher })
}

#[cfg(test)]
mod tests;
