//! The serde shapes that the crate's documentation lists. Only results have them, not handles.

use std::time::{Duration, UNIX_EPOCH};

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::{
    FlushReport, GroupValues, HistogramSnapshot, LimitMode, MetricKind, Reading, Snapshot,
    UnitKind, Usage, Value,
};

/// Returns nanoseconds, at most 584 years.
fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut to = to.serialize_struct("Reading", 3)?;
        to.serialize_field("value", &self.value)?;
        to.serialize_field("max_error", &self.max_error)?;
        to.serialize_field("age_ns", &ns(self.age))?;
        to.end()
    }
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut to = to.serialize_struct("Usage", 15)?;
        to.serialize_field("current", &self.current)?;
        to.serialize_field("peak", &self.peak)?;
        to.serialize_field("peak_low", &self.peak_low)?;
        to.serialize_field("limit", &self.limit)?;
        to.serialize_field("refused", &self.refused)?;
        to.serialize_field("overdrafts", &self.overdrafts)?;
        let mode = if self.mode == LimitMode::Soft { "soft" } else { "enforced" };
        to.serialize_field("mode", mode)?;
        to.serialize_field("high", &self.high)?;
        to.serialize_field("min", &self.min)?;
        to.serialize_field("low", &self.low)?;
        to.serialize_field("paused", &self.counts.paused)?;
        to.serialize_field("postponed", &self.counts.postponed)?;
        to.serialize_field("reclaimed", &self.counts.reclaimed)?;
        to.serialize_field("reclaimed_low", &self.counts.reclaimed_low)?;
        to.serialize_field("panics", &self.counts.panics)?;
        to.end()
    }
}

impl Serialize for HistogramSnapshot {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let counts = self.counts().iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets: Vec<(Option<u64>, u64)> =
            counts.map(|(index, count)| (self.buckets().upper(index), *count)).collect();
        let mut to = to.serialize_struct("HistogramSnapshot", 3)?;
        to.serialize_field("count", &self.count())?;
        to.serialize_field("sum", &self.sum())?;
        to.serialize_field("buckets", &buckets)?;
        to.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Counter(value) => value.serialize(to),
            Value::Gauge(value) => value.serialize(to),
            Value::Histogram(histogram) => histogram.serialize(to),
            Value::Quota(usage) => usage.serialize(to),
        }
    }
}

/// Values by name, in the schema's order.
struct Values<'a>(&'a GroupValues);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let metrics = self.0.schema().metrics();
        let mut to = to.serialize_map(Some(metrics.len()))?;
        for metric in metrics {
            to.serialize_entry(metric.name(), &self.0.value(metric))?;
        }
        to.end()
    }
}

impl Serialize for GroupValues {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut to = to.serialize_struct("GroupValues", 2)?;
        to.serialize_field("path", self.path())?;
        to.serialize_field("values", &Values(self))?;
        to.end()
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let since = self.system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut to = to.serialize_struct("Snapshot", 2)?;
        to.serialize_field("unix_ms", &(since.as_millis() as u64))?;
        to.serialize_field("groups", self.groups())?;
        to.end()
    }
}

impl Serialize for FlushReport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut to = to.serialize_struct("FlushReport", 4)?;
        to.serialize_field("groups", &self.groups)?;
        to.serialize_field("lines", &self.lines)?;
        to.serialize_field("duration_ns", &ns(self.duration))?;
        to.serialize_field("joined", &self.joined)?;
        to.end()
    }
}

impl Serialize for MetricKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for UnitKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
