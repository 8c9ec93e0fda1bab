//! What `/api/tree` and `/api/group` answer, as written by the server and read by `submeter top`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The answer of `/api/tree`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TreeDoc {
    pub(crate) server: ServerDoc,
    /// Wall-clock time of the values, in ms since 1970.
    pub(crate) at_ms: u64,
    /// How long the sample is that the rates are from.
    pub(crate) window_s: f64,
    pub(crate) schema: Vec<MetricDoc>,
    /// In the order in which they are shown.
    pub(crate) views: Vec<ViewDoc>,
    /// Root first, each before its children.
    pub(crate) groups: Vec<GroupDoc>,
}

/// Describes the server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ServerDoc {
    pub(crate) version: String,
    /// Where the program serves its own clients.
    pub(crate) listen: String,
    pub(crate) started_ms: u64,
    /// Processors of the machine, to read figures of CPU time by.
    pub(crate) cpus: usize,
    /// What everybody who looks must know.
    pub(crate) notice: Option<String>,
    /// What to do while there are no groups but the root.
    pub(crate) first_steps: Option<FirstStepsDoc>,
}

/// How the first group comes into being.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct FirstStepsDoc {
    pub(crate) text: String,
    /// A line to paste into a shell.
    pub(crate) command: String,
}

/// Describes one metric.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct MetricDoc {
    pub(crate) name: String,
    /// `counter`, `gauge`, `histogram` or `quota`.
    pub(crate) kind: String,
    /// `count`, `bytes` or `nanoseconds`: the unit of the values as they stand here.
    pub(crate) unit: String,
    pub(crate) help: String,
}

/// One group, descendants included in every figure except limit and refusals.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct GroupDoc {
    pub(crate) path: String,
    pub(crate) depth: usize,
    /// Index of the parent in `groups`.
    pub(crate) parent: Option<usize>,
    /// By the key of the view. Rates are over the last sample.
    pub(crate) overview: BTreeMap<String, Figure>,
    pub(crate) values: BTreeMap<String, ValueDoc>,
    /// Per second, of every counter, over the last sample.
    pub(crate) rates: BTreeMap<String, f64>,
}

/// One number of a row, or nothing: what was not measured is not zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Figure(pub(crate) Option<f64>);

impl Figure {
    /// Rounds to what is shown.
    pub(super) fn rounded(self, shape: Shape) -> Figure {
        let digits = match shape {
            Shape::Rate => 1,
            Shape::Share | Shape::Cores => 4,
            Shape::ByteRate | Shape::Count | Shape::Bytes | Shape::Time => 0,
        };
        Figure(self.0.map(|value| round(value, digits)))
    }
}

/// Rounds for the wire: the digits after these are noise that costs bytes.
pub(super) fn round(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

impl Serialize for Figure {
    /// Writes whole numbers without a fraction, so that bytes and counts read as such.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Beyond it not every whole number is a float.
        const WHOLE_MAX: f64 = (1u64 << 53) as f64;
        match self.0 {
            None => serializer.serialize_none(),
            Some(n) if n.fract() == 0.0 && n.abs() <= WHOLE_MAX => {
                serializer.serialize_i64(n as i64)
            }
            Some(n) => serializer.serialize_f64(n),
        }
    }
}

/// Describes one figure of a row.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ViewDoc {
    /// Its key in `overview`, and its name in the history.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) help: String,
    pub(crate) shape: Shape,
    pub(crate) place: Place,
    /// The key of the view that is the limit of this one.
    pub(crate) limit: Option<String>,
    /// Whether anything but zero deserves attention; of what has a limit, that little is left.
    pub(crate) is_trouble: bool,
}

/// What a figure is, and so how it is written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    /// Per second.
    Rate,
    /// Bytes per second.
    ByteRate,
    /// A part of a whole: 1.0 is all of it.
    Share,
    /// Processors in use.
    Cores,
    Count,
    Bytes,
    /// Nanoseconds.
    Time,
}

/// Where a figure is shown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// Everywhere: over the table, in it, and in the detail of a group with its past.
    Headline,
    /// In the table.
    Table,
    /// In the detail of a group.
    Detail,
    /// Not by itself: it is another one's limit.
    Nowhere,
}

/// A metric's value, in the schema's unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum ValueDoc {
    /// A counter's.
    Unsigned(u64),
    /// A gauge's.
    Signed(i64),
    /// A histogram's; quantiles are `None` when it is empty.
    Histogram {
        count: u64,
        sum: u64,
        p50: Option<u64>,
        p90: Option<u64>,
        p99: Option<u64>,
        p999: Option<u64>,
    },
    /// A quota's.
    Quota { current: u64, peak: u64, limit: Option<u64>, refused: u64 },
}

/// The answer of `/api/group?path=…`: one group as of the last sample, with its past.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DetailDoc {
    pub(crate) at_ms: u64,
    pub(crate) window_s: f64,
    pub(crate) children: usize,
    pub(crate) group: GroupDoc,
    pub(crate) histograms: BTreeMap<String, HistogramDoc>,
    pub(crate) history: HistoryDoc,
}

/// A histogram's buckets.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct HistogramDoc {
    /// Exclusive upper bound of each bucket; `None` for the last, which is open.
    pub(crate) upper: Vec<Option<u64>>,
    /// Since the server started.
    pub(crate) total: Vec<u64>,
    /// Within the last sample.
    pub(crate) recent: Vec<u64>,
}

/// The last two minutes, oldest first; every list has the length of `ago_s`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct HistoryDoc {
    /// Seconds before the newest sample.
    pub(crate) ago_s: Vec<f64>,
    /// By the key of the view, of those that are headlines.
    pub(crate) series: BTreeMap<String, Vec<Figure>>,
}

/// `DELETE /api/group`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeletionDoc {
    /// Which group.
    pub(crate) path: String,
    /// How many groups went with it, itself included.
    pub(crate) groups: usize,
    /// Items dropped.
    pub(crate) items: u64,
    /// Bytes that those had been charged.
    pub(crate) bytes: u64,
    /// How long it took, waiting for requests included.
    pub(crate) took_ms: f64,
    /// What still holds it, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_figures_have_no_fraction_and_all_are_read_as_written() {
        let figures = [Some(64_000.0), Some(-1.0), Some(0.25), Some(1e300), None].map(Figure);
        let text = serde_json::to_string(&figures).expect("JSON");
        assert_eq!(text, "[64000,-1,0.25,1e+300,null]");
        assert_eq!(serde_json::from_str::<Vec<Figure>>(&text).expect("JSON"), figures);
    }
}
