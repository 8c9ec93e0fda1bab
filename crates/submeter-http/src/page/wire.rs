//! The JSON of `/api/tree`, `/api/group`, `/api/stat` and `/api/totals`, as it is written, and as
//! `submeter top`, `submeter stat` and `submeter fleet bill` read it.
//!
//! Within one [`FORMAT`] members are only added; readers should skip those that they do not know.

pub mod stat;
pub mod totals;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The version of the JSON: it changes when a member is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// A list that is written entry by entry: in memory, the whole document of a large tree takes many
/// times the memory of its text, and allocators keep it.
pub(super) struct Each<F>(pub(super) F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The answer of `/api/tree`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TreeDoc<G = Vec<GroupDoc>> {
    /// The [`FORMAT`] of the server.
    pub format: u32,
    /// The program.
    pub server: ServerDoc,
    /// Wall-clock time of the values, in ms since 1970.
    pub at_ms: u64,
    /// The length of the sample that the rates are from.
    pub window_s: f64,
    /// Every metric of the tree.
    pub schema: Vec<MetricDoc>,
    /// In display order.
    pub views: Vec<ViewDoc>,
    /// Tables of things that are not in the tree. Left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panels: Vec<PanelDoc>,
    /// Who is harmed, by whom, and who is at a limit: everything that holds now, the worst first.
    /// Left out if there is nothing to report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<VerdictDoc>,
    /// Root first, each before its children.
    pub groups: G,
}

/// Describes the program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ServerDoc {
    /// The program's version.
    pub version: String,
    /// Where the program serves its own clients, or its name.
    pub listen: String,
    /// When it started, in ms since 1970.
    pub started_ms: u64,
    /// Processors of the machine, as the scale for figures of CPU time.
    pub cpus: usize,
    /// The notices of this moment.
    pub notice: Option<String>,
    /// What to do while there are no groups but the root.
    pub first_steps: Option<FirstStepsDoc>,
    /// How a group's limits are written. Left out if the program does not declare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_example: Option<String>,
    /// Whether clients may set a group's limits, by `POST /api/limit?path=`. Left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sets_limits: bool,
    /// Whether everything but the health check requires a token. Left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_token: bool,
}

/// The answer of `POST /api/limit?path=…`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct LimitDoc {
    /// The group.
    pub path: String,
    /// Its limits now, as the program writes them.
    pub limits: String,
    /// The text that restores its previous limits.
    pub undo: String,
}

/// How to create the first group.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FirstStepsDoc {
    /// What to do, in a sentence or two.
    pub text: String,
    /// A line to paste into a shell.
    pub command: String,
}

/// Describes one metric.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MetricDoc {
    /// As it was declared.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `quota`.
    pub kind: String,
    /// `count`, `bytes` or `nanoseconds`: the unit of the values in this document.
    pub unit: String,
    /// As it was declared.
    pub help: String,
}

/// One group. Every figure includes its descendants, except its own limits and their effects.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct GroupDoc {
    /// From the root, as in `/acme/web`.
    pub path: String,
    /// How many groups are above it.
    pub depth: usize,
    /// Index of the parent in `groups`.
    pub parent: Option<usize>,
    /// By the key of the view. Rates are over the last sample.
    pub overview: BTreeMap<String, Figure>,
    /// The current values, by the metric's name.
    pub values: BTreeMap<String, ValueDoc>,
    /// Of every counter over the last sample, per second.
    pub rates: BTreeMap<String, f64>,
}

/// One number of a row, or nothing: a value that was not measured is not zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub struct Figure(pub Option<f64>);

impl Figure {
    /// Rounds to the precision that is shown.
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
        // Above it, not every whole number is a float.
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
pub struct ViewDoc {
    /// Its key in `overview`, and its name in the history.
    pub key: String,
    /// The title above the figures.
    pub title: String,
    /// The figure's meaning, in a sentence.
    pub help: String,
    /// The kind of number.
    pub shape: Shape,
    /// Where it is shown.
    pub place: Placement,
    /// The key of the view that is the limit of this one.
    pub limit: Option<String>,
    /// Whether anything but zero deserves attention or, for a view with a limit, that little is
    /// left.
    pub is_trouble: bool,
    /// Whether it is the share of time in which charges waited for room. Left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pressure: bool,
    /// Whether tenants contend for it: others lack what one tenant has. Left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_contended: bool,
    /// Whether it is how often something is refused. Left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_refusal: bool,
}

/// A sentence about who is harmed, by whom, or who is at a limit, as of the last sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct VerdictDoc {
    /// The kind of verdict.
    pub kind: VerdictKind,
    /// The path of the group that the sentence begins with.
    pub group: String,
    /// Number of groups that it is about.
    pub tenants: usize,
    /// The sentence after the group's name, with the space in front. It is in the past tense in a
    /// second in which nothing was found.
    pub text: String,
    /// The same without figures, for reading aloud.
    pub short: String,
    /// Why it is reported: everybody who is harmed or to blame, with figures. Empty if the sentence
    /// is all there is.
    pub why: String,
    /// The limit that would end it, as `POST /api/limit` takes it. Left out if the verdict is over
    /// or the program knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The time since which it holds, in ms since 1970.
    pub since_ms: u64,
    /// When it ended, in ms since 1970: the sentence is then in the past tense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// The kind of a [`VerdictDoc`], in order of importance.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerdictKind {
    /// To blame: it takes far more than it usually does.
    Bursts,
    /// To blame: it takes most, and always does.
    Takes,
    /// Harmed: its requests wait far longer than work on them takes.
    Waits,
    /// Harmed: it is answered more slowly than usual.
    Slower,
    /// Harmed: it finds less than usual.
    FindsLess,
    /// Harmed: it does less than usual while another bursts.
    GetsLess,
    /// At a limit that refuses it something.
    Refused,
    /// At a limit of a rate, for which it waits.
    Throttled,
    /// At a limit of what is held: it waits for room.
    Stalls,
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

impl VerdictKind {
    /// All known kinds, in order.
    pub const ALL: [VerdictKind; 9] = [
        VerdictKind::Bursts,
        VerdictKind::Takes,
        VerdictKind::Waits,
        VerdictKind::Slower,
        VerdictKind::FindsLess,
        VerdictKind::GetsLess,
        VerdictKind::Refused,
        VerdictKind::Throttled,
        VerdictKind::Stalls,
    ];

    /// Returns its name in JSON and in metrics.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            VerdictKind::Bursts => "bursts",
            VerdictKind::Takes => "takes",
            VerdictKind::Waits => "waits",
            VerdictKind::Slower => "slower",
            VerdictKind::FindsLess => "finds_less",
            VerdictKind::GetsLess => "gets_less",
            VerdictKind::Refused => "refused",
            VerdictKind::Throttled => "throttled",
            VerdictKind::Stalls => "stalls",
            VerdictKind::Unknown => "unknown",
        }
    }

    /// Returns whether it names a tenant to blame.
    #[must_use]
    pub fn is_blame(self) -> bool {
        matches!(self, VerdictKind::Bursts | VerdictKind::Takes)
    }

    /// Returns whether it names a tenant that others harm.
    #[must_use]
    pub fn is_harm(self) -> bool {
        self.is_about_two() && !self.is_blame()
    }

    /// Returns whether it is about one tenant harming another, rather than being at a limit of its
    /// own.
    #[must_use]
    pub fn is_about_two(self) -> bool {
        use VerdictKind::{Refused, Stalls, Throttled, Unknown};
        !matches!(self, Refused | Throttled | Stalls | Unknown)
    }
}

/// A table of things that are not in the tree.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PanelDoc {
    /// The beginning of its metrics' names, after the program's.
    pub key: String,
    /// The title above it.
    pub title: String,
    /// From left to right.
    pub columns: Vec<ColumnDoc>,
    /// Each with a cell for each column.
    pub rows: Vec<Vec<CellDoc>>,
}

/// Describes a column of a [`PanelDoc`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ColumnDoc {
    /// The end of its metric's name, or the name of its label.
    pub key: String,
    /// The title above it.
    pub title: String,
    /// The column's meaning, in a sentence.
    pub help: String,
    /// The kind of its cells.
    pub kind: ColumnKind,
    /// The texts that a state may have; all but the first deserve attention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
}

/// The kind of a column's cells.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// A text that tells rows apart.
    Label,
    /// One of a set of texts.
    State,
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows.
    Counter,
    /// Any text.
    Text,
}

/// A cell of a [`PanelDoc`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CellDoc {
    /// A number, or nothing.
    Figure {
        /// The number.
        value: Figure,
        /// How it is written.
        shape: Shape,
    },
    /// A text.
    Text(String),
}

impl CellDoc {
    /// Makes a cell of a number.
    #[must_use]
    pub fn figure(value: impl Into<Option<u64>>, shape: Shape) -> CellDoc {
        CellDoc::Figure { value: Figure(value.into().map(|value| value as f64)), shape }
    }
}

impl From<&str> for CellDoc {
    fn from(text: &str) -> CellDoc {
        CellDoc::Text(text.to_owned())
    }
}

/// The kind of a figure, which decides how it is written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Per second.
    Rate,
    /// Bytes per second.
    ByteRate,
    /// A part of a whole: 1.0 is all of it.
    Share,
    /// Processors in use.
    Cores,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
}

/// Where a figure is shown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Everywhere: over the table, in it, and in the detail of a group with its past.
    Headline,
    /// In the table.
    Table,
    /// In the detail of a group.
    Detail,
    /// Not on its own: it is another view's limit.
    Nowhere,
}

/// A metric's value, in the schema's unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ValueDoc {
    /// A counter's.
    Unsigned(u64),
    /// A gauge's.
    Signed(i64),
    /// A histogram's; quantiles are `None` when it is empty.
    Histogram {
        /// How many values were recorded.
        count: u64,
        /// Their sum.
        sum: u64,
        /// Their median.
        p50: Option<u64>,
        /// The value that nine of ten do not exceed.
        p90: Option<u64>,
        /// The value that 99 of 100 do not exceed.
        p99: Option<u64>,
        /// The value that 999 of 1,000 do not exceed.
        p999: Option<u64>,
    },
    /// A quota's.
    Quota {
        /// The amount held.
        current: u64,
        /// The most that was ever held.
        peak: u64,
        /// The group's own limit.
        limit: Option<u64>,
        /// How many charges that limit refused.
        refused: u64,
        /// How many charges it granted although they exceeded it. Left out, like all that follow,
        /// if it is 0 or absent: most groups of a large tree are idle.
        #[serde(default, skip_serializing_if = "is_zero")]
        overdrafts: u64,
        /// Whether that limit grants charges that exceed it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        soft: bool,
        /// Usage above which callers of the group are asked to pause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<u64>,
        /// How many pauses they were asked for.
        #[serde(default, skip_serializing_if = "is_zero")]
        paused: u64,
        /// How much its callbacks freed, in the metric's unit.
        #[serde(default, skip_serializing_if = "is_zero")]
        reclaimed: u64,
        /// How often they were asked for usage that `low` protects.
        #[serde(default, skip_serializing_if = "is_zero")]
        reclaimed_low: u64,
        /// For how long charges of the group and those below it waited for room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureDoc>,
    },
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// How long charges waited, in the terms of Linux' pressure stall information.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct PressureDoc {
    /// Time in which at least one charge waited.
    pub some: StallDoc,
    /// Time in which at least one waited and the group held nothing.
    pub full: StallDoc,
}

/// For how long something stalled.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct StallDoc {
    /// The share of the last 10 seconds, in percent.
    pub avg10: f64,
    /// That of the last minute.
    pub avg60: f64,
    /// That of the last 5 minutes.
    pub avg300: f64,
    /// In all, in microseconds.
    pub total_us: u64,
}

/// The answer of `/api/group?path=…`: one group as of the last sample, with its past.
///
/// An update that returned before the question may be missing until the next sample, usually within
/// a second, and a younger group is not found. `/api/tree` and `/api/totals` read the tree when
/// asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DetailDoc {
    /// Wall-clock time of the sample, in ms since 1970.
    pub at_ms: u64,
    /// The length of the sample that the rates are from.
    pub window_s: f64,
    /// Number of groups directly below it.
    pub children: usize,
    /// The group.
    pub group: GroupDoc,
    /// By the metric's name.
    pub histograms: BTreeMap<String, HistogramDoc>,
    /// Its past.
    pub history: HistoryDoc,
}

/// The buckets of a histogram.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HistogramDoc {
    /// The largest value of each bucket; `None` for the last, which is open.
    pub upper: Vec<Option<u64>>,
    /// Since the server started.
    pub total: Vec<u64>,
    /// Within the last sample.
    pub recent: Vec<u64>,
}

/// The last two minutes, oldest first; every list has the length of `ago_s`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct HistoryDoc {
    /// Seconds before the newest sample.
    pub ago_s: Vec<f64>,
    /// The headlines' figures, by the key of the view.
    pub series: BTreeMap<String, Vec<Figure>>,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_list_is_written_an_entry_at_a_time() {
        struct Entry<'a>(&'a Cell<usize>);
        impl Serialize for Entry<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                assert_eq!(self.0.get(), 1, "alive while this one is written");
                serializer.serialize_u8(7)
            }
        }
        impl Drop for Entry<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let alive = Cell::new(0);
        let entry = |_| {
            alive.set(alive.get() + 1);
            Entry(&alive)
        };
        let list = Each(|| (0..3).map(entry));
        assert_eq!(serde_json::to_string(&list).expect("JSON"), "[7,7,7]");
    }

    /// Whole figures have no fraction and all are read as written.
    #[test]
    fn whole_figures_have_no_fraction() {
        let figures = [Some(64_000.0), Some(-1.0), Some(0.25), Some(1e300), None].map(Figure);
        let text = serde_json::to_string(&figures).expect("JSON");
        assert_eq!(text, "[64000,-1,0.25,1e+300,null]");
        assert_eq!(serde_json::from_str::<Vec<Figure>>(&text).expect("JSON"), figures);
    }
}
