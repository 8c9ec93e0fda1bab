//! Turns samples into the documents of the JSON API.

use std::collections::BTreeMap;
use std::io;

use submeter::{
    GroupValues, HistogramSnapshot, LimitMode, Metric, MetricKind, Pressure, Schema, Snapshot,
    Stall, UnitKind, Value,
};
use submeter_documents::Parts;

use super::dashboard::Dashboard;
use super::gzip::Coding;
use super::panel::Panel;
use super::sample::{Sample, unix_ms};
use super::views::Views;
use super::wire::{
    DetailDoc, Each, FORMAT, Figure, GroupDoc, HistogramDoc, HistoryDoc, MetricDoc, PressureDoc,
    StallDoc, TreeDoc, ValueDoc, VerdictDoc, round,
};

/// Describes the metrics.
pub(super) fn schema(schema: &Schema) -> Vec<MetricDoc> {
    let metrics = schema.metrics().iter();
    metrics
        .map(|metric| MetricDoc {
            name: metric.name().to_owned(),
            kind: match metric.kind() {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
                MetricKind::Quota => "quota",
                _ => "unknown",
            }
            .to_owned(),
            unit: unit(metric),
            help: metric.help().to_owned(),
        })
        .collect()
}

/// Names the unit of a metric's values.
pub(super) fn unit(metric: &Metric) -> String {
    let name = match metric.unit() {
        UnitKind::Count => "count",
        UnitKind::Bytes => "bytes",
        UnitKind::Nanoseconds => "nanoseconds",
        _ => "unknown",
    };
    name.to_owned()
}

/// Answers `/api/tree`: the values of `fresh`, the rates of `sample`.
pub(super) fn tree(
    fresh: &Snapshot,
    sample: &Sample,
    verdicts: Vec<VerdictDoc>,
    shown: &Dashboard,
    coding: Coding,
) -> io::Result<Parts> {
    let group = |group: &GroupValues| {
        let mut figures = match sample.now.place(group) {
            Some(at) => sample.rows[at].figures.clone(),
            // The group is younger than the sample: it has values now, and rates from the next
            // sample on.
            None => sample.views.figures(group, Some(group), sample.window),
        };
        // The figures must be as fresh as the values beside them.
        sample.views.freshen(&mut figures, group);
        GroupDoc {
            path: group.path().to_owned(),
            depth: group.depth(),
            parent: group.parent(),
            overview: overview(&sample.views, &figures),
            values: values(fresh.schema(), group),
            rates: rates(sample, group),
        }
    };
    coding.json(&TreeDoc {
        format: FORMAT,
        server: shown.server(),
        at_ms: unix_ms(fresh.system_time()),
        window_s: sample.window.as_secs_f64(),
        schema: schema(fresh.schema()),
        views: sample.views.docs().cloned().collect(),
        panels: shown.panels.iter().map(Panel::doc).collect(),
        verdicts,
        groups: Each(|| fresh.groups().iter().map(group)),
    })
}

/// Answers `/api/group`.
pub(super) fn detail(sample: &Sample, at: usize, history: HistoryDoc) -> DetailDoc {
    let groups = sample.now.snapshot.groups();
    let group = &groups[at];
    let metrics = sample.now.snapshot.schema().metrics().iter();
    let histograms = metrics
        .filter_map(|metric| {
            let Value::Histogram(total) = group.value(metric) else { return None };
            let recent = match sample.before(group).map(|before| before.value(metric)) {
                Some(Value::Histogram(before)) => total.since(&before),
                _ => total.clone(),
            };
            Some((metric.name().to_owned(), histogram(&total, &recent)))
        })
        .collect();
    DetailDoc {
        at_ms: unix_ms(sample.now.snapshot.system_time()),
        window_s: sample.window.as_secs_f64(),
        children: groups.iter().filter(|child| child.parent() == Some(at)).count(),
        group: GroupDoc {
            path: group.path().to_owned(),
            depth: group.depth(),
            parent: group.parent(),
            overview: overview(&sample.views, &sample.rows[at].figures),
            values: values(sample.now.snapshot.schema(), group),
            rates: rates(sample, group),
        },
        histograms,
        history,
    }
}

fn overview(views: &Views, figures: &[Figure]) -> BTreeMap<String, Figure> {
    let figures = views.docs().zip(figures);
    figures.map(|(view, figure)| (view.key.clone(), *figure)).collect()
}

pub(super) fn values(schema: &Schema, group: &GroupValues) -> BTreeMap<String, ValueDoc> {
    let metrics = schema.metrics().iter();
    metrics
        .filter_map(|metric| {
            let value = match group.value(metric) {
                Value::Counter(n) => ValueDoc::Unsigned(n),
                Value::Gauge(n) => ValueDoc::Signed(n),
                Value::Histogram(h) => ValueDoc::Histogram {
                    count: h.count(),
                    sum: h.sum(),
                    p50: h.quantile(0.5),
                    p90: h.quantile(0.9),
                    p99: h.quantile(0.99),
                    p999: h.quantile(0.999),
                },
                Value::Quota(u) => ValueDoc::Quota {
                    current: u.current,
                    peak: u.peak,
                    limit: u.limit,
                    refused: u.refused,
                    overdrafts: u.overdrafts,
                    soft: u.mode == LimitMode::Soft,
                    high: u.high,
                    paused: u.counts.paused,
                    reclaimed: u.counts.reclaimed,
                    reclaimed_low: u.counts.reclaimed_low,
                    pressure: group.pressure_of(metric).and_then(pressure),
                },
                _ => return None,
            };
            Some((metric.name().to_owned(), value))
        })
        .collect()
}

/// Nothing for a group in which no charge ever waited.
fn pressure(pressure: Pressure) -> Option<PressureDoc> {
    let stall = |stall: Stall| StallDoc {
        avg10: round(stall.avg10, 2),
        avg60: round(stall.avg60, 2),
        avg300: round(stall.avg300, 2),
        total_us: u64::try_from(stall.total.as_micros()).unwrap_or(u64::MAX),
    };
    let doc = PressureDoc { some: stall(pressure.some), full: stall(pressure.full) };
    (pressure != Pressure::default()).then_some(doc)
}

/// Every counter's rate over the sample, per second; empty for a group that is not in two samples.
fn rates(sample: &Sample, group: &GroupValues) -> BTreeMap<String, f64> {
    let seconds = sample.window.as_secs_f64();
    let (Some(now), Some(before)) = (sample.now.same(group), sample.before(group)) else {
        return BTreeMap::new();
    };
    let metrics = sample.now.snapshot.schema().metrics().iter();
    metrics
        .filter_map(|metric| match (now.value(metric), before.value(metric)) {
            (Value::Counter(now), Value::Counter(before)) if seconds > 0.0 => {
                let rate = now.saturating_sub(before) as f64 / seconds;
                Some((metric.name().to_owned(), round(rate, 3)))
            }
            _ => None,
        })
        .collect()
}

fn histogram(total: &HistogramSnapshot, recent: &HistogramSnapshot) -> HistogramDoc {
    let buckets = total.buckets();
    HistogramDoc {
        upper: (0..buckets.len()).map(|index| buckets.upper(index)).collect(),
        total: total.counts().to_vec(),
        recent: recent.counts().to_vec(),
    }
}
