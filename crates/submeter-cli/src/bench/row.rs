//! One measured cell, and what its samples say.

use std::fmt;

use serde::{Serialize, Serializer};

/// A measured cell. The fields' names are those of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The table's name.
    pub(crate) table: &'static str,
    /// What distinguishes the cell from others of its variant.
    #[serde(serialize_with = "as_map")]
    pub(crate) params: Params,
    /// What was measured.
    pub(crate) variant: &'static str,
    /// The median of the samples, or the quantile that `params` names.
    #[serde(serialize_with = "as_figure")]
    pub(crate) value: f64,
    /// The unit of value and samples.
    pub(crate) unit: &'static str,
    /// Everything that was measured, in the order of measurement.
    #[serde(serialize_with = "as_figures")]
    pub(crate) samples: Vec<f64>,
}

/// Names and values, in the order in which people see them.
pub(crate) type Params = Vec<(&'static str, Param)>;

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Param {
    /// A quantity, in the unit that the parameter's name ends in.
    Number(u64),
    /// A choice.
    Word(&'static str),
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Number(number) => write!(f, "{number}"),
            Param::Word(word) => f.write_str(word),
        }
    }
}

impl Row {
    /// Returns the distance between the quartiles as a share of the median: how far to trust it.
    pub(crate) fn spread(&self) -> f64 {
        let sorted = sorted(&self.samples);
        let at = |part| quantile(&sorted, part).unwrap_or(f64::NAN);
        (at(0.75) - at(0.25)) / at(0.5)
    }
}

/// Returns the smallest sample that is not below `part` of all: one that was measured, where a mean of two
/// would be a figure that nobody saw. `None` without samples.
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

fn as_map<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(params.iter().map(|(name, value)| (name, value)))
}

/// Leaves six significant digits: no clock here tells more, and a record with all seventeen is twice as long.
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
        let params = vec![("copy_bytes", Param::Number(32)), ("cpus", Param::Word("all"))];
        let value = quantile(&sorted(samples), 0.5).unwrap_or(f64::NAN);
        Row { table: "t", params, variant: "v", value, unit: "loops/s", samples: samples.to_vec() }
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
