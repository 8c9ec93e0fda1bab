//! From rows to OTLP's messages.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyOf;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets as Powers;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric as Message, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use submeter::export::QuotaPart;
use submeter::{Buckets, Metric, MetricKind, Schema, UnitKind, Value};

use crate::builder::{Builder, Temporality};
use crate::series::{Layout, SeriesPlace, SeriesRow, counters, nth};

/// OpenTelemetry's attribute that names one of several processes of a service.
const INSTANCE: &str = "service.instance.id";

/// Makes the messages of one export.
pub(crate) struct Encoder<'a> {
    pub(crate) settings: &'a Builder,
    /// The epoch of the tree that has the values.
    pub(crate) epoch: u64,
    /// When the base was taken, and the time now, in nanoseconds of Unix time.
    pub(crate) from: u64,
    pub(crate) at: u64,
}

impl Encoder<'_> {
    /// Returns the request, and the number of points in it.
    pub(crate) fn request(
        &self,
        schema: &Schema,
        layout: &Layout,
        rows: &[SeriesRow<'_>],
    ) -> (ExportMetricsServiceRequest, usize) {
        let mut metrics = Vec::new();
        let mut points = 0;
        for (metric, place) in layout.places(schema) {
            let mut add = |suffix: &str, unit: UnitKind, data: Option<(Data, usize)>| {
                let Some((data, n)) = data.filter(|(_, n)| *n > 0) else { return };
                points += n;
                metrics.push(Message {
                    name: format!("{}{}{suffix}", self.settings.prefix, metric.name()),
                    description: metric.help().into(),
                    unit: unit_of(unit).into(),
                    metadata: Vec::new(),
                    data: Some(data),
                });
            };
            let unit = metric.unit();
            if let Some(level) = place.level {
                add("", unit, Some(self.levels(rows, level)));
            }
            if let Some(buckets) = place.buckets {
                add("", unit, Some(self.histograms(rows, place, buckets)));
            } else if metric.kind() == MetricKind::Quota {
                for (word, part) in place.flows.clone().zip(counters()) {
                    let suffix = format!(".{}", part.name());
                    add(&suffix, part.unit(metric), Some(self.sums(rows, word)));
                }
                self.quota(rows, metric, &mut add);
            } else if !place.flows.is_empty() {
                add("", unit, Some(self.sums(rows, place.flows.start)));
            }
        }
        let scope = InstrumentationScope {
            name: "submeter".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
        let resource = Resource { attributes: self.resource(), ..Resource::default() };
        let all = ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope_metrics],
            ..ResourceMetrics::default()
        };
        (ExportMetricsServiceRequest { resource_metrics: vec![all] }, points)
    }

    /// Returns the attributes that tell the process and its tree from all others.
    fn resource(&self) -> Vec<KeyValue> {
        let own = &self.settings.resource;
        let epoch = format!("{:016x}", self.epoch);
        // To a receiver, two processes of one name would be one series, with wrong sums.
        let instance = (!own.iter().any(|(key, _)| key == INSTANCE)).then_some((INSTANCE, &epoch));
        let own = own.iter().map(|(key, value)| (key.as_str(), value));
        own.chain(instance)
            .chain([("submeter.epoch", &epoch)])
            .map(|(key, value)| attribute(key, value))
            .collect()
    }

    fn sums(&self, rows: &[SeriesRow<'_>], word: usize) -> (Data, usize) {
        let points: Vec<_> = rows
            .iter()
            .filter_map(|row| {
                let n = nth(self.flows(row), word);
                (n > 0).then(|| self.number(row, self.from(row), n.cast_signed()))
            })
            .collect();
        let n = points.len();
        let sum = Sum {
            data_points: points,
            aggregation_temporality: self.temporality(),
            is_monotonic: true,
        };
        (Data::Sum(sum), n)
    }

    /// Makes points of gauges and of quotas' usage. They are not OTLP's gauges, because they may be
    /// added up.
    fn levels(&self, rows: &[SeriesRow<'_>], level: usize) -> (Data, usize) {
        let points: Vec<_> = rows
            .iter()
            .filter_map(|row| {
                let now = nth(row.levels.as_deref(), level);
                // Zero is news if something else was sent before.
                let is_sent = now != 0 || nth(row.levels_before.as_deref(), level) != 0;
                is_sent.then(|| self.number(row, row.since, now))
            })
            .collect();
        let n = points.len();
        let sum = Sum {
            data_points: points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: false,
        };
        (Data::Sum(sum), n)
    }

    /// Adds the values of a quota that are not sums over groups.
    fn quota(
        &self,
        rows: &[SeriesRow<'_>],
        metric: &Metric,
        add: &mut impl FnMut(&str, UnitKind, Option<(Data, usize)>),
    ) {
        let usages = || {
            rows.iter().filter_map(|row| match row.group.value(metric) {
                Value::Quota(usage) => Some((row, usage)),
                _ => None,
            })
        };
        let gauge = |points: Vec<NumberDataPoint>| {
            let n = points.len();
            Some((Data::Gauge(Gauge { data_points: points }), n))
        };
        let number =
            |row: &SeriesRow<'_>, n: u64| self.number(row, 0, i64::try_from(n).unwrap_or(i64::MAX));
        // For a group without a limit it follows from the quota itself and those of the groups
        // below.
        let subtree = usages().filter(|(_, usage)| usage.limit.is_some());
        let subtree = subtree.map(|(row, usage)| number(row, usage.current)).collect();
        add(".subtree", metric.unit(), gauge(subtree));
        for part in QuotaPart::ALL.iter().copied().filter(|part| !part.is_counter()) {
            // A value of 0 is idle, except for a limit, which then lets nothing through.
            let is_sent = |n: &u64| *n > 0 || part == QuotaPart::Limit;
            let points = rows.iter().filter_map(|row| {
                let n = part.value(row.group, metric).filter(is_sent)?;
                Some(number(row, n))
            });
            add(&format!(".{}", part.name()), part.unit(metric), gauge(points.collect()));
        }
    }

    fn histograms(
        &self,
        rows: &[SeriesRow<'_>],
        place: &SeriesPlace,
        buckets: Buckets,
    ) -> (Data, usize) {
        let seen = rows.iter().filter_map(|row| {
            let words = self.flows(row)?.get(place.flows.clone())?;
            let counts = powers(&words[1..], buckets);
            let count: u64 = counts.iter().sum();
            (count > 0).then_some((row, words[0] as f64, count, counts))
        });
        // The first bucket ends there.
        let low = buckets.upper(0).unwrap_or(1);
        let aggregation_temporality = self.temporality();
        if self.settings.exponential {
            let data_points: Vec<_> = seen
                .map(|(row, sum, count, counts)| ExponentialHistogramDataPoint {
                    attributes: vec![attribute("group", row.group.path())],
                    start_time_unix_nano: self.from(row),
                    time_unix_nano: self.at,
                    count,
                    sum: Some(sum),
                    scale: 0,
                    zero_count: counts[0],
                    positive: Some(Powers {
                        offset: low.ilog2().cast_signed(),
                        bucket_counts: counts[1..].to_vec(),
                    }),
                    zero_threshold: low as f64,
                    ..ExponentialHistogramDataPoint::default()
                })
                .collect();
            let n = data_points.len();
            let histogram = ExponentialHistogram { data_points, aggregation_temporality };
            return (Data::ExponentialHistogram(histogram), n);
        }
        let bounds = |n: usize| (0..n).map(|power| (low << power) as f64).collect();
        let data_points: Vec<_> = seen
            .map(|(row, sum, count, counts)| HistogramDataPoint {
                attributes: vec![attribute("group", row.group.path())],
                start_time_unix_nano: self.from(row),
                time_unix_nano: self.at,
                count,
                sum: Some(sum),
                explicit_bounds: bounds(counts.len() - 1),
                bucket_counts: counts,
                ..HistogramDataPoint::default()
            })
            .collect();
        let n = data_points.len();
        (Data::Histogram(Histogram { data_points, aggregation_temporality }), n)
    }

    fn number(&self, row: &SeriesRow<'_>, from: u64, n: i64) -> NumberDataPoint {
        NumberDataPoint {
            attributes: vec![attribute("group", row.group.path())],
            start_time_unix_nano: from,
            time_unix_nano: self.at,
            value: Some(Number::AsInt(n)),
            ..NumberDataPoint::default()
        }
    }

    fn flows<'a>(&self, row: &'a SeriesRow<'_>) -> Option<&'a [u64]> {
        match self.settings.temporality {
            Temporality::Cumulative => row.own.as_deref(),
            Temporality::Delta => row.news.as_deref(),
        }
    }

    fn from(&self, row: &SeriesRow<'_>) -> u64 {
        match self.settings.temporality {
            Temporality::Cumulative => row.since,
            Temporality::Delta => self.from,
        }
    }

    fn temporality(&self) -> i32 {
        match self.settings.temporality {
            Temporality::Cumulative => AggregationTemporality::Cumulative.into(),
            Temporality::Delta => AggregationTemporality::Delta.into(),
        }
    }
}

/// Joins the buckets of each power of two. The first holds what is below all powers, the last is
/// open.
fn powers(counts: &[u64], buckets: Buckets) -> Vec<u64> {
    let mut joined = Vec::new();
    let mut count = 0u64;
    for (index, &n) in counts.iter().enumerate() {
        count += n;
        if buckets.upper(index).is_none_or(u64::is_power_of_two) {
            joined.push(std::mem::take(&mut count));
        }
    }
    joined
}

/// Names a unit as UCUM does. Counts have none, rather than `1`, which conventions reserve for
/// ratios: Prometheus would call a limit of streams `streams_limit_ratio`. An annotation such as
/// `{streams}` would only repeat the metric's name.
fn unit_of(unit: UnitKind) -> &'static str {
    match unit {
        UnitKind::Bytes => "By",
        UnitKind::Nanoseconds => "ns",
        _ => "",
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(AnyOf::StringValue(value.into())) };
    KeyValue { key: key.into(), value: Some(value), ..KeyValue::default() }
}
