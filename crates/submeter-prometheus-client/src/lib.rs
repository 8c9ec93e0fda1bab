//! A tree's metrics in the registry of a program that uses [`prometheus_client`].
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which exporter to
//! choose](submeter::guide::exporting).
//!
#![doc = concat!("```\n", include_str!("../examples/registry.rs"), "```")]
//!
//! # When not to use it
//! Each scrape has every group. A program that exports nothing else, or that has thousands of
//! tenants, should use [`submeter::export`], which writes exact decimals where this crate has
//! floats.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use submeter::export::QuotaPart;
use submeter::{HistogramSnapshot, Metric, MetricKind, Snapshot, Tree, UnitKind, Value};

/// A [`Collector`] that shows every metric of every group of a tree.
///
/// The group's path is the only label, `group="/acme/web"`. Values are totals that include
/// descendants, so that they never fall when a child ends, and names say so:
/// `requests_subtree_total`. A sum over all groups counts a leaf once per level: select one level,
/// `group=~"/[^/]+"`, or the root, `group="/"`.
///
/// Names are those of the schema, with the unit at the end; the prefix is the registry's. A quota
/// has one family for its usage, and one for each [`QuotaPart`]; all of these except the peak and
/// the stalls are the group's own. A histogram has a bucket per power of two, whose bound is the
/// largest value in it.
///
/// There are no native histograms: their bounds are powers of two of the unit. Times are counted in
/// nanoseconds and shown in seconds, so counts would have to be moved between buckets, and a scrape
/// would no longer show what the tree has.
///
/// Costs a [snapshot](Tree::snapshot) for each scrape, and keeps the tree.
pub struct TreeCollector {
    tree: Tree,
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
        // Scrapers got restored values from the process that counted them.
        let snapshot = self.tree.snapshot_without_restored();
        let mut taken = HashSet::new();
        for metric in snapshot.schema().metrics() {
            family(&snapshot, metric, None, &mut taken, &mut encoder)?;
            if metric.kind() == MetricKind::Quota {
                for &part in QuotaPart::ALL {
                    family(&snapshot, metric, Some(part), &mut taken, &mut encoder)?;
                }
            }
        }
        Ok(())
    }
}

/// Encodes one family: a metric, or a part of a quota.
fn family(
    snapshot: &Snapshot,
    metric: &Metric,
    part: Option<QuotaPart>,
    taken: &mut HashSet<String>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let kind = part.map_or(metric.unit(), |part| part.unit(metric));
    let unit = match kind {
        UnitKind::Bytes => Some(Unit::Bytes),
        UnitKind::Nanoseconds => Some(Unit::Seconds),
        _ => None,
    };
    let metric_type = match (metric.kind(), part) {
        (_, Some(part)) if part.is_counter() => MetricType::Counter,
        (MetricKind::Counter, _) => MetricType::Counter,
        (MetricKind::Histogram, _) => MetricType::Histogram,
        _ => MetricType::Gauge,
    };
    let what = match part {
        None => " (with descendants)".to_owned(),
        Some(part) => format!(", {}", part.help()),
    };
    let help = format!("{}{what}", metric.help().replace('\\', "\\\\").replace('\n', "\\n"));
    let name = name(metric, part, kind, metric_type, taken);
    let mut family = encoder.encode_descriptor(&name, &help, unit.as_ref(), metric_type)?;
    for group in snapshot {
        let labels = [("group", group.path())];
        // Encoded only for a group that has a sample: a group without a limit has none.
        match part {
            None => whole(group.value(metric), kind, family.encode_family(&labels)?)?,
            Some(part) => {
                let Some(n) = part.value(group, metric) else { continue };
                let mut to = family.encode_family(&labels)?;
                match part.is_counter() {
                    true => counter(n, kind, &mut to)?,
                    false => level(n, kind, &mut to)?,
                }
            }
        }
    }
    Ok(())
}

/// Returns the name without what the encoder appends: the unit, and `_total` after a counter. A
/// name whose samples would clash with another's gets a number.
fn name(
    metric: &Metric,
    part: Option<QuotaPart>,
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
    words.push(part.map_or("subtree", QuotaPart::name));
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

fn whole(value: Value, unit: UnitKind, mut to: MetricEncoder<'_>) -> fmt::Result {
    match value {
        Value::Counter(n) => counter(n, unit, &mut to),
        Value::Gauge(n) if unit.per_base() == 1 => to.encode_gauge(&n),
        Value::Gauge(n) => to.encode_gauge(&(n as f64 / unit.per_base() as f64)),
        Value::Histogram(seen) => histogram(&seen, unit, &mut to),
        Value::Quota(usage) => level(usage.current, unit, &mut to),
        // A kind of a later submeter.
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
    // An integer where possible: a float loses counts above 2^53.
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
            // The encoder adds up the buckets before.
            Some(upper) if upper.is_power_of_two() => {
                buckets.push((in_base(upper, unit), std::mem::take(&mut count)));
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

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
