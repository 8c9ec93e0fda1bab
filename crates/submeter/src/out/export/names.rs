//! The names under which a schema's metrics are exported, unique for any schema.

use std::collections::HashSet;

use super::quota_part::QuotaPart;
use crate::metric::schema::{Metric, MetricKind, Schema};
use crate::metric::unit::UnitKind;

/// One metric family of the exposition: a name, a type and the source of its samples.
#[derive(Debug)]
pub(super) struct Family<'a> {
    pub(super) name: String,
    pub(super) metric: &'a Metric,
    pub(super) part: NamePart,
    /// Whether the family shows totals with descendants.
    pub(super) subtree: bool,
}

/// The part of a metric that a family shows. Only a quota has more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamePart {
    Counter,
    Gauge,
    Histogram,
    Current,
    Quota(QuotaPart),
    /// The usage with descendants, as the limit sees it.
    Used,
}

impl NamePart {
    fn of(kind: MetricKind) -> Vec<NamePart> {
        match kind {
            MetricKind::Counter => vec![NamePart::Counter],
            MetricKind::Gauge => vec![NamePart::Gauge],
            MetricKind::Histogram => vec![NamePart::Histogram],
            MetricKind::Quota => {
                let parts = QuotaPart::ALL.iter().copied().map(NamePart::Quota);
                [NamePart::Current].into_iter().chain(parts).chain([NamePart::Used]).collect()
            }
        }
    }

    fn infix(self) -> &'static str {
        match self {
            NamePart::Counter | NamePart::Gauge | NamePart::Histogram | NamePart::Current => "",
            NamePart::Quota(part) => part.name(),
            NamePart::Used => SUBTREE,
        }
    }

    /// Returns whether its values may fall: those of groups that have ended are not repeated.
    pub(super) fn is_level(self) -> bool {
        match self {
            NamePart::Counter | NamePart::Histogram => false,
            NamePart::Quota(part) => !part.is_counter(),
            NamePart::Gauge | NamePart::Current | NamePart::Used => true,
        }
    }

    /// Returns the suffixes of the family's samples, which must not clash with those of another
    /// family.
    fn samples(self) -> &'static [&'static str] {
        match self {
            NamePart::Histogram => &["_bucket", "_sum", "_count", "_created"],
            part if part.is_level() => &[""],
            _ => &["_total", "_created"],
        }
    }

    /// Returns the unit of the family, which differs from the metric's for a count of events and
    /// for the time of stalls.
    pub(super) fn unit(self, metric: &Metric) -> UnitKind {
        match self {
            NamePart::Quota(part) => part.unit(metric),
            _ => metric.unit(),
        }
    }
}

/// The suffix that distinguishes the name of a total with descendants from that of a group's own
/// value.
const SUBTREE: &str = "subtree";

/// Names every family of a schema, and those of totals with descendants if they are asked for.
/// `others` are names of families and samples that do not come from the schema.
pub(super) fn families<'a>(
    schema: &'a Schema,
    prefix: &str,
    subtrees: bool,
    others: impl Iterator<Item = String>,
) -> Vec<Family<'a>> {
    let mut taken: HashSet<String> = others.collect();
    let mut families = Vec::new();
    let mut add = |metric: &'a Metric, part: NamePart, subtree: bool| {
        let infix = if subtree && part != NamePart::Used { SUBTREE } else { part.infix() };
        let stem = stem(metric, infix);
        let name = unique(&mut taken, part, prefix, &stem, part.unit(metric));
        families.push(Family { name, metric, part, subtree });
    };
    for metric in schema.metrics() {
        for part in NamePart::of(metric.kind()) {
            add(metric, part, subtrees && part == NamePart::Used);
        }
    }
    // After all others, so that no other name depends on whether they are asked for.
    let with_words = |metric: &&Metric| metric.kind() != MetricKind::Quota;
    for metric in schema.metrics().iter().filter(with_words).filter(|_| subtrees) {
        add(metric, NamePart::of(metric.kind())[0], true);
    }
    families
}

/// Returns the metric's name without unit or `total`, which the exposition appends: `bytes_in` of
/// bytes becomes `in`, so that it is exported as `in_bytes_total` rather than
/// `bytes_in_bytes_total`.
fn stem(metric: &Metric, infix: &str) -> String {
    let unit = metric.unit().base_name();
    let mut words: Vec<&str> = metric.name().split('_').filter(|word| !word.is_empty()).collect();
    let mut drop = |word: &str| {
        if words.len() > 1
            && let Some(at) = words.iter().position(|w| *w == word)
        {
            words.remove(at);
        }
    };
    if !unit.is_empty() {
        drop(unit);
    }
    if metric.kind() == MetricKind::Counter {
        drop("total");
    }
    if !infix.is_empty() {
        words.push(infix);
    }
    words.join("_")
}

/// Joins the parts and, if the name or one of its samples is taken, appends a number to the stem.
///
/// A schema may well have both a gauge `x_total` and a counter `x`. Refusing that would make an
/// exporter's convention a rule of the library, but two families of one name would make a scrape
/// invalid.
fn unique(
    taken: &mut HashSet<String>,
    part: NamePart,
    prefix: &str,
    stem: &str,
    unit: UnitKind,
) -> String {
    let mut n = 1;
    loop {
        let mut name = sanitized(prefix);
        for word in [stem, &if n == 1 { String::new() } else { n.to_string() }, unit.base_name()] {
            if !word.is_empty() {
                if !name.is_empty() {
                    name.push('_');
                }
                name.push_str(word);
            }
        }
        let mut all: Vec<String> = part.samples().iter().map(|s| format!("{name}{s}")).collect();
        all.push(name.clone());
        if all.iter().all(|sample| !taken.contains(sample)) {
            taken.extend(all);
            return name;
        }
        n += 1;
    }
}

/// Turns the prefix into a legal start of a metric's name.
pub(super) fn sanitized(prefix: &str) -> String {
    let mut name: String = prefix
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == ':' { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buckets, Bytes, Count, Nanoseconds};

    fn names(build: impl FnOnce(&mut crate::SchemaBuilder), prefix: &str) -> Vec<String> {
        let mut schema = Schema::builder();
        build(&mut schema);
        let schema = schema.build().expect("a valid schema");
        families(&schema, prefix, false, std::iter::empty()).into_iter().map(|f| f.name).collect()
    }

    #[test]
    fn units_go_last_and_once() {
        let got = names(
            |s| {
                s.counter::<Bytes>("bytes_in", "");
                s.counter::<Nanoseconds>("cpu", "");
                s.counter::<Count>("requests_total", "");
                s.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
                s.quota::<Bytes>("memory", "");
                s.gauge::<Bytes>("bytes", "");
            },
            "app",
        );
        let expected = "app_in_bytes app_cpu_seconds app_requests app_latency_seconds \
                        app_memory_bytes app_memory_limit_bytes app_memory_peak_bytes \
                        app_memory_refused app_memory_overdrafts app_memory_paused \
                        app_memory_pressure_some_seconds app_memory_pressure_full_seconds \
                        app_memory_reclaimed_bytes app_memory_reclaimed_low \
                        app_memory_subtree_bytes app_bytes_bytes";
        assert_eq!(got.join(" "), expected);
    }

    #[test]
    fn no_two_families_share_a_sample_name() {
        let got = names(
            |s| {
                s.gauge::<Count>("x_total", "");
                s.counter::<Count>("x", "");
                s.gauge::<Bytes>("memory_peak", "");
                s.quota::<Bytes>("memory", "");
                s.gauge::<Count>("y_count", "");
                s.histogram::<Count>("y", "", Buckets::powers(2, 8));
            },
            "",
        );
        assert_eq!(got[..3], ["x_total", "x_2", "memory_peak_bytes"]);
        assert_eq!(got[3..6], ["memory_bytes", "memory_limit_bytes", "memory_peak_2_bytes"]);
        assert_eq!(got[6..9], ["memory_refused", "memory_overdrafts", "memory_paused"]);
        assert_eq!(got[13..], ["memory_subtree_bytes", "y_count", "y_2"]);
    }

    #[test]
    fn a_prefix_becomes_a_legal_start() {
        let got = names(
            |s| {
                s.gauge::<Count>("x", "");
            },
            "9 lives-of",
        );
        assert_eq!(got, ["_9_lives_of_x"]);
    }
}
