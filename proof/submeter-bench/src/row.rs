//! A measured cell, which tables write into a record and reports read back.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A name that is known at compile time, or one from a record.
pub(crate) type Name = Cow<'static, str>;

/// A measured cell. The fields are named as in the JSON.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Row {
    /// The table's name.
    pub(crate) table: Name,
    /// The parameters, which distinguish the cell from others of its variant.
    #[serde(default)]
    pub(crate) params: Params,
    /// The variant.
    pub(crate) variant: Name,
    /// The result of the samples, usually their median or the quantile that `params` names. NaN if
    /// there is none, which is `null` in JSON.
    #[serde(default = "nan", deserialize_with = "or_nan", serialize_with = "as_figure")]
    pub(crate) value: f64,
    /// The unit of value and samples.
    #[serde(default)]
    pub(crate) unit: Name,
    /// All samples, in the order of measurement.
    #[serde(default, deserialize_with = "numbers", serialize_with = "as_figures")]
    pub(crate) samples: Vec<f64>,
}

impl Row {
    /// Returns the value, if it is a number.
    pub(crate) fn figure(&self) -> Option<f64> {
        self.value.is_finite().then_some(self.value)
    }

    /// Returns the samples in ascending order.
    pub(crate) fn sorted(&self) -> Vec<f64> {
        sorted(&self.samples)
    }

    /// Returns whether the value is the median, judging by the parameters. The middle half of the
    /// samples does not describe the spread of other quantiles.
    pub(crate) fn is_median(&self) -> bool {
        self.params.get("quantile").is_none_or(|quantile| quantile == "p50")
    }

    /// Returns the distance between the quartiles as a share of the median, which says how far to
    /// trust it.
    pub(crate) fn spread(&self) -> f64 {
        let sorted = self.sorted();
        let at = |part| quantile(&sorted, part).unwrap_or(f64::NAN);
        (at(0.75) - at(0.25)) / at(0.5)
    }

    /// Returns the quartiles. `None` if they do not describe the value: for a quantile other than
    /// the median, and for fewer than four samples.
    pub(crate) fn quartiles(&self) -> Option<(f64, f64)> {
        let sorted = self.sorted();
        let enough = self.is_median() && sorted.len() >= 4;
        enough.then(|| Some((quantile(&sorted, 0.25)?, quantile(&sorted, 0.75)?))).flatten()
    }
}

/// Returns the smallest sample that is not below `part` of all samples. It is a measured value,
/// whereas the mean of two samples would be one that no clock ever showed. `None` without samples.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the samples in ascending order.
pub(crate) fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Names and values of parameters, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Params(pub(crate) Vec<(Name, Param)>);

impl<const N: usize> From<[(&'static str, Param); N]> for Params {
    fn from(pairs: [(&'static str, Param); N]) -> Params {
        Params(pairs.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Params {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether all of `others` are among these.
    pub(crate) fn has(&self, others: &Params) -> bool {
        others.0.iter().all(|(name, value)| self.get(name) == Some(value.as_str()))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    /// Sets the value of a parameter, which is added if it is missing.
    pub(crate) fn set(&mut self, name: impl Into<Name>, value: Param) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// Returns a copy without the parameter `name`.
    pub(crate) fn without(&self, name: &str) -> Params {
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

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
        /// The visitor that keeps the record's order: a map of serde_json would be sorted by name.
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Params;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of parameters with their values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut params = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Param>()? {
                    params.push((name.into(), value));
                }
                Ok(Params(params))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The value of a parameter. Values compare as text, so that a number in a definition equals a word
/// in a record.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Param {
    text: Name,
    /// The number, if the value is a quantity in the unit that ends the parameter's name; `None`
    /// for a choice.
    number: Option<u64>,
}

impl Param {
    /// Makes a quantity.
    pub(crate) fn number(number: u64) -> Param {
        Param { text: number.to_string().into(), number: Some(number) }
    }

    /// Makes a choice.
    pub(crate) fn word(word: &'static str) -> Param {
        Param { text: word.into(), number: None }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Param {
    fn eq(&self, other: &Param) -> bool {
        self.text == other.text
    }
}

impl Eq for Param {}

impl PartialOrd for Param {
    fn partial_cmp(&self, other: &Param) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Param {
    fn cmp(&self, other: &Param) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Param {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.number {
            Some(number) => serializer.serialize_u64(number),
            None => serializer.serialize_str(&self.text),
        }
    }
}

/// The value of a parameter, as JSON and TOML write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Other(f64),
    Choice(bool),
    Word(String),
}

impl From<Written> for Param {
    fn from(written: Written) -> Param {
        let text = match written {
            Written::Number(number) => return Param::number(number),
            Written::Other(number) => number.to_string(),
            Written::Choice(choice) => choice.to_string(),
            Written::Word(word) => word,
        };
        Param { text: text.into(), number: None }
    }
}

fn nan() -> f64 {
    f64::NAN
}

fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Reads samples, leaving out those that are not numbers.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let samples: Vec<Option<f64>> = Vec::deserialize(deserializer)?;
    Ok(samples.into_iter().flatten().filter(|sample| sample.is_finite()).collect())
}

/// Rounds to six significant digits: no clock here is more precise, and seventeen digits would make
/// a record twice as long.
fn figure(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn as_figure<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(figure(*value))
}

fn as_figures<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| figure(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(samples: &[f64]) -> Row {
        let params = [("copy_bytes", Param::number(32)), ("cpus", Param::word("all"))].into();
        let value = quantile(&sorted(samples), 0.5).unwrap_or(f64::NAN);
        let [table, variant, unit] = ["t", "v", "loops/s"].map(Name::from);
        Row { table, params, variant, value, unit, samples: samples.to_vec() }
    }

    #[test]
    fn medians_and_quantiles_are_samples() {
        assert_eq!(quantile(&[], 0.5), None);
        for (samples, median) in [
            (&[7.0][..], 7.0),
            (&[3.0, 1.0], 1.0),
            (&[5.0, 1.0, 3.0], 3.0),
            (&[4.0, 1.0, 3.0, 2.0], 2.0),
        ] {
            assert_eq!(row(samples).value, median, "{samples:?}");
        }
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        for (part, value) in [(0.0, 1.0), (0.25, 25.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(quantile(&hundred, part), Some(value), "{part}");
        }
    }

    #[test]
    fn spread_is_the_middle_half_over_the_median() {
        assert_eq!(row(&[2.0, 2.0, 2.0]).spread(), 0.0);
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(row(&hundred).spread(), 1.0);
        assert!(row(&[]).spread().is_nan());
    }

    #[test]
    fn json_has_the_agreed_names() {
        let json = serde_json::to_string(&row(&[1.5])).expect("JSON");
        let expected = r#"{"table":"t","params":{"copy_bytes":32,"cpus":"all"},"variant":"v","value":1.5,"unit":"loops/s","samples":[1.5]}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn json_has_six_digits() {
        let row = row(&[617_132_445.25, 0.000_123_456_789]);
        let json = serde_json::to_string(&row).expect("JSON");
        assert!(json.contains(r#""samples":[617132000.0,0.000123457]"#), "{json}");
        assert!(json.contains(r#""value":0.000123457"#), "{json}");
    }
}
