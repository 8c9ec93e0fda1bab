//! Compares two files of `submeter bench --json` by ratios, and names what became worse beyond the noise.
//!
//! Absolute times differ between machines and hours; how a variant does next to its baseline, measured in turns
//! with it, does not. A loss is one whose whole interval lies beyond the floor: within a run the samples say how
//! far a ratio is known, and the floor stands for what differs between runs, such as where memory lies.

mod interval;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;

use interval::{Cell, change};

/// How much worse a ratio may be before anybody is told: a quarter, as two builds of the same code place
/// loops and lines differently.
const FLOOR: f64 = 1.25;
/// Samples below which a median says nothing.
const SAMPLES_MIN: usize = 5;

/// Reads a file that `submeter bench --json` wrote.
///
/// # Errors
/// One line that names the file and the remedy.
pub(crate) fn read(path: &Path) -> Result<Value, String> {
    let say = |what: &dyn fmt::Display| {
        let path = path.display();
        format!("{path}: {what}: name a file that submeter bench --json wrote")
    };
    let text = std::fs::read_to_string(path).map_err(|error| say(&error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| say(&error))?;
    if value["machine"].is_object() && value["rows"].is_array() {
        return Ok(value);
    }
    Err(say(&"no machine and rows"))
}

/// Returns the variant that each table's others are compared with, by `bench/definitions`.
///
/// # Errors
/// One line that names the file that cannot be read.
pub(crate) fn baselines() -> Result<BTreeMap<String, String>, String> {
    let folder = crate::workspace_root().join("bench/definitions");
    let say = |path: &Path, what: &dyn fmt::Display| {
        format!("{}: {what}: see the files beside it", path.display())
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).map_err(|error| say(&folder, &error))? {
        let path = entry.map_err(|error| say(&folder, &error))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| say(&path, &error))?;
        let table: toml::Table = text.parse().map_err(|error| say(&path, &error))?;
        let word = |name: &str| table.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        let (name, baseline) = word("table")
            .zip(word("baseline"))
            .ok_or_else(|| say(&path, &"no table and baseline"))?;
        found.insert(name, baseline);
    }
    Ok(found)
}

/// What a comparison found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// A line for each cell that became worse.
    pub(crate) losses: Vec<String>,
    /// Cells that were compared.
    compared: usize,
    /// Why nothing was.
    skipped: Option<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.skipped {
            return writeln!(f, "skipped: {why}");
        }
        self.losses.iter().try_for_each(|loss| writeln!(f, "{loss}"))?;
        writeln!(f, "regress: {} ratios compared, {} worse", self.compared, self.losses.len())
    }
}

/// Compares the ratios of cells that both files have. What has no direction, such as counts of a histogram, and
/// what has too few samples is left out.
///
/// # Errors
/// When both are of one kind of machine and have no ratio in common: that must not look like a success.
pub(crate) fn compare(
    old: &Value,
    new: &Value,
    baselines: &BTreeMap<String, String>,
) -> Result<Verdict, String> {
    for name in ["arch", "cpus", "rung", "debug_build"] {
        let (was, is) = (&old["machine"][name], &new["machine"][name]);
        if was != is {
            let why = format!("{name} was {was} and is {is}: make a record on a machine like this");
            return Ok(Verdict { skipped: Some(why), ..Verdict::default() });
        }
    }
    let (old, new) = (cells(old), cells(new));
    let mut verdict = Verdict::default();
    for (key, is) in &new {
        let [table, params, variant] = key;
        let Some(baseline) = baselines.get(table).filter(|baseline| *baseline != variant) else {
            continue;
        };
        let base = [table.clone(), params.clone(), baseline.clone()];
        let (Some(was), Some(was_base), Some(is_base)) =
            (old.get(key), old.get(&base), new.get(&base))
        else {
            continue;
        };
        verdict.compared += 1;
        let found = change(was, was_base, is, is_base);
        if found.low > FLOOR {
            verdict.losses.push(format!(
                "{table} {params} {variant} ÷ {baseline}: {:.3} in the record, {:.3} now, worse by \
                 {:.2} to {:.2} times",
                found.was, found.is, found.low, found.high
            ));
        }
    }
    if verdict.compared == 0 {
        return Err("no ratio is in both files: measure the tables that the record has".to_owned());
    }
    Ok(verdict)
}

/// Returns the cells that can be compared, by table, parameters and variant.
fn cells(record: &Value) -> BTreeMap<[String; 3], Cell> {
    let cell = |row: &Value| {
        let higher = match row["unit"].as_str()? {
            unit if unit.ends_with("/s") => true,
            "ns" | "us" | "ms" | "bytes" => false,
            _ => return None,
        };
        let samples: Option<Vec<f64>> =
            row["samples"].as_array()?.iter().map(Value::as_f64).collect();
        let samples = samples?;
        if samples.len() < SAMPLES_MIN || samples.iter().any(|sample| *sample <= 0.0) {
            return None;
        }
        let quantile = |name| match row["params"]["quantile"].as_str() {
            // Only the tables of single times keep these; others have one quantile a round.
            Some("p99") if name == "kill" => 0.99,
            _ => 0.5,
        };
        let table = row["table"].as_str()?;
        let key =
            [table.to_owned(), row["params"].to_string(), row["variant"].as_str()?.to_owned()];
        Some((key, Cell { samples, quantile: quantile(table), higher }))
    };
    record["rows"].as_array().into_iter().flatten().filter_map(cell).collect()
}

#[cfg(test)]
mod tests;
