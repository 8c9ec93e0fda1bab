//! What `/api/tree` and `/api/group` answer, as written by the server and read by `submeter top`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer of `/api/tree`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TreeDoc {
    pub(crate) server: ServerDoc,
    /// Wall-clock time of the values, in ms since 1970.
    pub(crate) at_ms: u64,
    /// How long the sample is that the rates are from.
    pub(crate) window_s: f64,
    pub(crate) schema: Vec<MetricDoc>,
    /// Root first, each before its children.
    pub(crate) groups: Vec<GroupDoc>,
}

/// Describes the server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ServerDoc {
    pub(crate) version: String,
    /// Where the cache listens.
    pub(crate) listen: String,
    pub(crate) started_ms: u64,
    /// Whether requests are metered; if not, only memory is known.
    pub(crate) metering: bool,
    /// What separates the names of tenants in a key.
    pub(crate) delimiter: char,
    /// Processors of the machine, to read `cpu_cores` by.
    pub(crate) cpus: usize,
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
    pub(crate) overview: Overview,
    pub(crate) values: BTreeMap<String, ValueDoc>,
    /// Per second, of every counter, over the last sample.
    pub(crate) rates: BTreeMap<String, f64>,
}

/// What a row shows. Rates are over the last sample.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Overview {
    pub(crate) requests_per_s: f64,
    /// `None` when nothing was looked up.
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_limit_bytes: Option<u64>,
    /// `None` when nothing was answered.
    pub(crate) p99_ns: Option<u64>,
    /// Processors in use: 1.0 is one of them all the time.
    pub(crate) cpu_cores: f64,
    pub(crate) evictions_per_s: f64,
    /// Charges that the group's own limit refused.
    pub(crate) refused_per_s: f64,
    pub(crate) items: i64,
    pub(crate) bytes_in_per_s: f64,
    pub(crate) bytes_out_per_s: f64,
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
    pub(crate) requests_per_s: Vec<Option<f64>>,
    pub(crate) hit_ratio: Vec<Option<f64>>,
    pub(crate) memory_bytes: Vec<Option<f64>>,
    pub(crate) p99_ns: Vec<Option<f64>>,
    pub(crate) cpu_cores: Vec<Option<f64>>,
    pub(crate) evictions_per_s: Vec<Option<f64>>,
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
