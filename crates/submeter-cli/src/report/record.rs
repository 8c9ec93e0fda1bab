//! What `submeter bench --json` wrote, read back: a report is made of a record, so that one from
//! another machine or another day can be looked at too.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A record: the machine, and what was measured on it.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub(super) absent: Vec<Absent>,
    /// What tables say of themselves.
    #[serde(default)]
    notes: Value,
}

/// Where the figures come from. What newer records know beside this is kept in `more`.
#[derive(Debug, Deserialize)]
pub(super) struct Machine {
    #[serde(default)]
    pub(super) cpu_model: Option<String>,
    pub(super) arch: String,
    pub(super) cpus: u64,
    pub(super) kernel: String,
    pub(super) rung: String,
    #[serde(default)]
    pub(super) rung_reason: String,
    #[serde(default)]
    pub(super) load_average: Option<[f64; 3]>,
    pub(super) date: String,
    pub(super) version: String,
    #[serde(default)]
    pub(super) commit: Option<String>,
    #[serde(default)]
    pub(super) rustc: String,
    #[serde(default)]
    pub(super) debug_build: bool,
    #[serde(default)]
    pub(super) interrupted: bool,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    #[serde(flatten)]
    pub(super) more: BTreeMap<String, Value>,
}

/// A measured cell.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) table: String,
    #[serde(default)]
    pub(super) params: Params,
    pub(super) variant: String,
    /// Absent where the figure was no number, which JSON cannot say.
    pub(super) value: Option<f64>,
    #[serde(default)]
    pub(super) unit: String,
    #[serde(default)]
    samples: Vec<Option<f64>>,
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
    /// One line that says what is wrong with `text`, and how to get a record.
    pub(crate) fn parse(text: &str) -> Result<Record, String> {
        serde_json::from_str(text).map_err(|error| {
            format!("this is no record of submeter bench: {error}; make one by submeter bench --json FILE")
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

    /// Returns what the record says of `table`. Notes are a list of lines, or of objects that name their
    /// table; lines begin with the table's name, or are everybody's.
    pub(super) fn notes(&self, table: &str) -> Vec<String> {
        let Value::Array(notes) = &self.notes else { return Vec::new() };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let of_table = |note: &Value| match note {
            Value::String(line) => line.strip_prefix(&format!("{table}: ")).map(str::to_owned),
            Value::Object(object) if object.get("table")?.as_str()? == table => {
                object.get("note").or_else(|| object.get("text")).and_then(text)
            }
            _ => None,
        };
        notes.iter().filter_map(of_table).collect()
    }
}

impl Row {
    /// Returns the samples in ascending order.
    pub(super) fn sorted(&self) -> Vec<f64> {
        let mut samples = self.samples();
        samples.sort_by(f64::total_cmp);
        samples
    }

    /// Returns the samples in the order of measurement.
    pub(super) fn samples(&self) -> Vec<f64> {
        self.samples.iter().copied().flatten().filter(|sample| sample.is_finite()).collect()
    }

    /// Returns the quartiles between which half of the samples are. `None` where they say nothing of
    /// the value: of a quantile other than the median, and of fewer than four samples.
    pub(super) fn quartiles(&self) -> Option<(f64, f64)> {
        let of_median = self.params.get("quantile").is_none_or(|quantile| quantile == "p50");
        let sorted = self.sorted();
        let enough = of_median && sorted.len() >= 4;
        enough.then(|| Some((quantile(&sorted, 0.25)?, quantile(&sorted, 0.75)?))).flatten()
    }
}

/// Puts rows together that `key` makes alike, wherever they are, in the order of the first of each.
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

/// Returns the smallest sample that is not below `part` of all, as the bench itself does.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Names and values, in their order. A value is text, so that a number in a definition and one in a
/// record compare alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Params(pub(super) Vec<(String, String)>);

impl Params {
    /// Makes them from what is known when this is written.
    pub(super) fn of(pairs: &[(&str, &str)]) -> Params {
        Params(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether all of `others` are among these.
    pub(super) fn has(&self, others: &Params) -> bool {
        others.0.iter().all(|(name, value)| self.get(name) == Some(value))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns these without the one that is called `name`.
    pub(super) fn without(&self, name: &str) -> Params {
        Params(self.0.iter().filter(|(own, _)| own != name).cloned().collect())
    }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{} {value}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
        /// A map of serde_json would be sorted by name; the record's order is the one to show.
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Params;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of parameters with their values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut params = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Param>()? {
                    params.push((name, value.text()));
                }
                Ok(Params(params))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The value of a parameter, as JSON and TOML write it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Param {
    Whole(i64),
    Number(f64),
    Choice(bool),
    Word(String),
}

impl Param {
    fn text(self) -> String {
        match self {
            Param::Whole(number) => number.to_string(),
            Param::Number(number) => number.to_string(),
            Param::Choice(choice) => choice.to_string(),
            Param::Word(word) => word,
        }
    }
}
