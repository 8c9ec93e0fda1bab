//! The OpenMetrics 1.0 text exposition of a snapshot.

use std::fmt::{self, Write};

use super::names::{Family, Part, families};
use crate::backend::Backend;
use crate::histogram::HistogramSnapshot;
use crate::snapshot::{GroupValues, Snapshot, Value};
use crate::unit::UnitKind;

/// The content type of the text that [`openmetrics`] writes.
///
/// # Examples
/// ```
/// use submeter::export::OPENMETRICS_CONTENT_TYPE;
///
/// assert!(OPENMETRICS_CONTENT_TYPE.starts_with("application/openmetrics-text"));
/// ```
pub const OPENMETRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes a snapshot as OpenMetrics 1.0 text, every metric of every live group.
///
/// The group's path is the only label, `group="/acme/web"`, so that a query selects a level by its
/// path; the root is `/`. Values are totals that include descendants: a sum over all groups counts
/// a leaf once per level, so select one group, or leaves. A group's series end when it is killed;
/// its parent's totals keep what it counted.
///
/// Names are `prefix_metric_unit`, with the base unit (`_seconds`, `_bytes`) at the end and
/// `_total` after a counter. A quota has four families: its current usage, `_limit` (only for
/// groups that have one), `_peak`, and the counter `_refused`. Histograms are cumulative with one
/// bucket per power of two; values are integers in the schema's unit, so the bound of a bucket is
/// the largest value in it, `2^k − 1`. Times are written as exact decimals, never converted to
/// floats.
///
/// # Errors
/// Only those of `out`; writing to a `String` never fails.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// tree.get_or_create("/acme")?.add(requests, 3);
///
/// let mut text = String::new();
/// submeter::export::openmetrics(&tree.snapshot(), "app", &mut text)?;
/// assert!(text.contains("app_requests_total{group=\"/acme\"} 3\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn openmetrics<W: Write>(snapshot: &Snapshot, prefix: &str, out: &mut W) -> fmt::Result {
    let labels: Vec<String> = snapshot.groups().iter().map(|group| escaped(group.path())).collect();
    for family in families(snapshot.schema(), prefix) {
        head(&family, out)?;
        for (group, label) in snapshot.groups().iter().zip(&labels) {
            samples(&family, group, label, out)?;
        }
    }
    out.write_str("# EOF\n")
}

/// Writes the [`Backend`] of this process's updates and its reason as the only sample of an info
/// metric: `app_backend_info{backend="libc_rseq",reason="the self-test passed"} 1`.
///
/// Write it before [`openmetrics`], which ends the exposition.
///
/// # Errors
/// Only those of `out`; writing to a `String` never fails.
///
/// # Examples
/// ```
/// let mut text = String::new();
/// submeter::export::openmetrics_backend(submeter::backend(), "app", &mut text)?;
/// assert!(text.starts_with("# TYPE app_backend info\n"));
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub fn openmetrics_backend<W: Write>(backend: Backend, prefix: &str, out: &mut W) -> fmt::Result {
    let (id, reason) = (backend.id(), escaped(backend.reason()));
    writeln!(out, "# TYPE {prefix}_backend info")?;
    writeln!(
        out,
        "# HELP {prefix}_backend The backend of updates, and why it is not a better one"
    )?;
    writeln!(out, "{prefix}_backend_info{{backend=\"{id}\",reason=\"{reason}\"}} 1")
}

fn head<W: Write>(family: &Family<'_>, out: &mut W) -> fmt::Result {
    let name = &family.name;
    let (kind, what) = match family.part {
        Part::Counter => ("counter", ""),
        Part::Gauge => ("gauge", ""),
        Part::Histogram => ("histogram", ""),
        Part::Current => ("gauge", ", current usage"),
        Part::Limit => ("gauge", ", limit"),
        Part::Peak => ("gauge", ", peak usage"),
        Part::Refused => ("counter", ", charges refused by this group's limit"),
    };
    writeln!(out, "# TYPE {name} {kind}")?;
    let unit = family.part.unit(family.metric).base_name();
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    let help = escaped(family.metric.help());
    // A limit and its refusals belong to one group; everything else adds up along the tree.
    let scope = match family.part {
        Part::Limit | Part::Refused => "",
        _ => " (with descendants)",
    };
    writeln!(out, "# HELP {name} {help}{what}{scope}")
}

fn samples<W: Write>(
    family: &Family<'_>,
    group: &GroupValues,
    label: &str,
    out: &mut W,
) -> fmt::Result {
    let name = &family.name;
    let unit = family.part.unit(family.metric);
    let number = |n: u64| Number { negative: false, magnitude: n, unit };
    match (family.part, group.value(family.metric)) {
        (Part::Counter, Value::Counter(n)) => {
            writeln!(out, "{name}_total{{group=\"{label}\"}} {}", number(n))
        }
        (Part::Gauge, Value::Gauge(n)) => {
            let n = Number { negative: n < 0, magnitude: n.unsigned_abs(), unit };
            writeln!(out, "{name}{{group=\"{label}\"}} {n}")
        }
        (Part::Histogram, Value::Histogram(histogram)) => {
            buckets(name, label, unit, &histogram, out)
        }
        (Part::Refused, Value::Quota(usage)) => {
            writeln!(out, "{name}_total{{group=\"{label}\"}} {}", usage.refused)
        }
        (part, Value::Quota(usage)) => {
            let value = match part {
                Part::Limit => usage.limit,
                Part::Peak => Some(usage.peak),
                _ => Some(usage.current),
            };
            match value {
                Some(n) => writeln!(out, "{name}{{group=\"{label}\"}} {}", number(n)),
                None => Ok(()),
            }
        }
        (part, value) => unreachable!("a {part:?} cannot be {value:?}"),
    }
}

/// Writes one bucket per power of two: all quarters would make a scrape much larger, for a
/// precision that a rate over a scrape interval seldom has.
fn buckets<W: Write>(
    name: &str,
    label: &str,
    unit: UnitKind,
    histogram: &HistogramSnapshot,
    out: &mut W,
) -> fmt::Result {
    let mut cumulative = 0u64;
    for (index, &count) in histogram.counts().iter().enumerate() {
        cumulative = cumulative.saturating_add(count);
        match histogram.buckets().upper(index) {
            Some(upper) if upper.is_power_of_two() => {
                let le = Bound { upper: upper - 1, unit };
                writeln!(out, "{name}_bucket{{group=\"{label}\",le=\"{le}\"}} {cumulative}")?;
            }
            Some(_) => {}
            None => {
                writeln!(out, "{name}_bucket{{group=\"{label}\",le=\"+Inf\"}} {cumulative}")?;
            }
        }
    }
    let sum = Number { negative: false, magnitude: histogram.sum(), unit };
    writeln!(out, "{name}_sum{{group=\"{label}\"}} {sum}")?;
    writeln!(out, "{name}_count{{group=\"{label}\"}} {cumulative}")
}

/// A value in base units as an exact decimal.
struct Number {
    negative: bool,
    magnitude: u64,
    unit: UnitKind,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_char('-')?;
        }
        let per_base = self.unit.per_base();
        write!(f, "{}", self.magnitude / per_base)?;
        let fraction = self.magnitude % per_base;
        if fraction == 0 {
            return Ok(());
        }
        let digits = per_base.ilog10() as usize;
        let fraction = format!("{fraction:0digits$}");
        write!(f, ".{}", fraction.trim_end_matches('0'))
    }
}

/// A bucket's bound, which OpenMetrics requires to have a decimal point even if it is whole.
struct Bound {
    upper: u64,
    unit: UnitKind,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Number { negative: false, magnitude: self.upper, unit: self.unit }.to_string();
        f.write_str(&text)?;
        if text.contains('.') { Ok(()) } else { f.write_str(".0") }
    }
}

/// Escapes a label's value or a help text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}
