//! A tree's metrics in the registry of a program that uses [`prometheus_client`].
//!
#![doc = concat!("```\n", include_str!("../examples/registry.rs"), "```")]
//!
//! # When not to use it
//! Each scrape has every group. A program that exports nothing else, or that has thousands of
//! tenants, uses [`submeter::export`], which writes exact decimals where this crate has floats.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use submeter::{HistogramSnapshot, Metric, MetricKind, Snapshot, Tree, UnitKind, Value};

/// A [`Collector`] that shows every metric of every group of a tree.
///
/// The group's path is the only label, `group="/acme/web"`. Values are totals that include
/// descendants, so that they never fall when a child ends, and names say so:
/// `requests_subtree_total`. A sum of them over all groups counts a leaf once per level: select one
/// level, `group=~"/[^/]+"`, or the root, `group="/"`.
///
/// Names are those of the schema, with the unit at the end; the prefix is the registry's. A quota
/// has four families: what is used, and its `_limit`, `_peak` and `_refused`. A histogram has a
/// bucket per power of two, whose bound is the largest value in it.
///
/// Costs a [snapshot](Tree::snapshot) for each scrape, and keeps the tree.
pub struct TreeCollector {
    tree: Tree,
}

/// A part of a metric that is a family of its own; only a quota has more than one.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Whole,
    Limit,
    Peak,
    Refused,
}

impl TreeCollector {
    /// Creates a collector of `tree`, for
    /// [`register_collector`](prometheus_client::registry::Registry::register_collector).
    #[must_use]
    pub fn new(tree: &Tree) -> TreeCollector {
        TreeCollector { tree: tree.clone() }
    }
}

/// Writes how many groups there are.
impl fmt::Debug for TreeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeCollector({} groups)", self.tree.group_count())
    }
}

impl Collector for TreeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.tree.snapshot();
        let mut taken = HashSet::new();
        for metric in snapshot.schema().metrics() {
            let parts: &[Part] = match metric.kind() {
                MetricKind::Quota => &[Part::Whole, Part::Limit, Part::Peak, Part::Refused],
                _ => &[Part::Whole],
            };
            for &part in parts {
                family(&snapshot, metric, part, &mut taken, &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn family(
    snapshot: &Snapshot,
    metric: &Metric,
    part: Part,
    taken: &mut HashSet<String>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let kind = if part == Part::Refused { UnitKind::Count } else { metric.unit() };
    let unit = match kind {
        UnitKind::Bytes => Some(Unit::Bytes),
        UnitKind::Nanoseconds => Some(Unit::Seconds),
        _ => None,
    };
    let metric_type = match (metric.kind(), part) {
        (MetricKind::Counter, _) | (_, Part::Refused) => MetricType::Counter,
        (MetricKind::Histogram, _) => MetricType::Histogram,
        _ => MetricType::Gauge,
    };
    let (what, scope) = match part {
        Part::Whole => ("", " (with descendants)"),
        Part::Peak => (", peak usage", " (with descendants)"),
        Part::Limit => (", limit", ""),
        Part::Refused => (", charges refused by this group's limit", ""),
    };
    let help = format!("{}{what}{scope}", metric.help().replace('\\', "\\\\").replace('\n', "\\n"));
    let name = name(metric, part, kind, metric_type, taken);
    let mut family = encoder.encode_descriptor(&name, &help, unit.as_ref(), metric_type)?;
    for group in snapshot {
        let labels = [("group", group.path())];
        sample(group.value(metric), part, kind, family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Returns the name without what the encoder appends: the unit, and `_total` after a counter. One
/// whose samples would be another's has a number.
fn name(
    metric: &Metric,
    part: Part,
    unit: UnitKind,
    metric_type: MetricType,
    taken: &mut HashSet<String>,
) -> String {
    let suffixes: &[&str] = match metric_type {
        MetricType::Counter => &["", "_total"],
        MetricType::Histogram => &["", "_bucket", "_sum", "_count"],
        _ => &[""],
    };
    let mut words: Vec<&str> = metric.name().split('_').filter(|word| !word.is_empty()).collect();
    // `bytes_in` becomes `in_bytes`, not `bytes_in_bytes`.
    let total = if metric.kind() == MetricKind::Counter { "total" } else { "" };
    for said_later in [metric.unit().base_name(), total] {
        if let Some(at) = words.iter().position(|word| *word == said_later)
            && words.len() > 1
        {
            words.remove(at);
        }
    }
    words.push(match part {
        Part::Whole => "subtree",
        Part::Limit => "limit",
        Part::Peak => "peak",
        Part::Refused => "refused",
    });
    let stem = words.join("_");
    let unit =
        if unit.base_name().is_empty() { "".into() } else { format!("_{}", unit.base_name()) };
    let mut n = 1;
    loop {
        let name = if n == 1 { stem.clone() } else { format!("{stem}_{n}") };
        let samples: Vec<_> =
            suffixes.iter().map(|suffix| format!("{name}{unit}{suffix}")).collect();
        if samples.iter().all(|sample| !taken.contains(sample)) {
            taken.extend(samples);
            return name;
        }
        n += 1;
    }
}

fn sample(value: Value, part: Part, unit: UnitKind, mut to: MetricEncoder<'_>) -> fmt::Result {
    match (value, part) {
        (Value::Counter(n), _) => counter(n, unit, &mut to),
        (Value::Gauge(n), _) if unit.per_base() == 1 => to.encode_gauge(&n),
        (Value::Gauge(n), _) => to.encode_gauge(&(n as f64 / unit.per_base() as f64)),
        (Value::Histogram(seen), _) => histogram(&seen, unit, &mut to),
        (Value::Quota(usage), Part::Whole) => level(usage.current, unit, &mut to),
        (Value::Quota(usage), Part::Peak) => level(usage.peak, unit, &mut to),
        (Value::Quota(usage), Part::Refused) => counter(usage.refused, unit, &mut to),
        // A group without a limit has no sample.
        (Value::Quota(usage), Part::Limit) => match usage.limit {
            Some(limit) => level(limit, unit, &mut to),
            None => Ok(()),
        },
        // A kind that a later submeter has.
        _ => Ok(()),
    }
}

fn level(n: u64, unit: UnitKind, to: &mut MetricEncoder<'_>) -> fmt::Result {
    if unit.per_base() == 1 {
        return to.encode_gauge(&n);
    }
    to.encode_gauge(&in_base(n, unit))
}

fn counter(n: u64, unit: UnitKind, to: &mut MetricEncoder<'_>) -> fmt::Result {
    // Whole where it can be: a float loses counts above 2^53.
    if unit.per_base() == 1 {
        return to.encode_counter::<NoLabelSet, u64, u64>(&n, None);
    }
    to.encode_counter::<NoLabelSet, f64, u64>(&in_base(n, unit), None)
}

fn histogram(seen: &HistogramSnapshot, unit: UnitKind, to: &mut MetricEncoder<'_>) -> fmt::Result {
    let mut buckets = Vec::new();
    let mut count = 0u64;
    for (index, &n) in seen.counts().iter().enumerate() {
        count = count.saturating_add(n);
        match seen.buckets().upper(index) {
            // The largest value in the bucket. The encoder adds what is before.
            Some(upper) if upper.is_power_of_two() => {
                buckets.push((in_base(upper - 1, unit), std::mem::take(&mut count)));
            }
            Some(_) => {}
            None => buckets.push((f64::INFINITY, count)),
        }
    }
    let sum = in_base(seen.sum(), unit);
    to.encode_histogram::<NoLabelSet>(sum, seen.count(), &buckets, None)
}

fn in_base(n: u64, unit: UnitKind) -> f64 {
    n as f64 / unit.per_base() as f64
}
