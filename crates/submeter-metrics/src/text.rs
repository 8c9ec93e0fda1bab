//! The OpenMetrics text of the metrics that have a slot.

use std::collections::HashSet;
use std::fmt::{self, Write};

use submeter::{GroupValues, HistogramSnapshot, Snapshot};

use crate::handles::GAUGE_PER_UNIT;
use crate::names::{self, escaped};
use crate::slots::{LOSSES, Losses, Named, Slot};

pub(crate) fn write<W: Write>(
    snapshot: &Snapshot,
    prefix: &str,
    metrics: &[Named],
    losses: &Losses,
    per_unit: u32,
    out: &mut W,
) -> fmt::Result {
    let groups: Vec<(&GroupValues, String)> =
        snapshot.groups().iter().map(|group| (group, escaped(group.path()))).collect();
    let slots = [losses.unplaced_updates, losses.unplaced_increments, losses.unfit_values];
    let losses = LOSSES.iter().zip(slots).map(|(&(name, help), slot)| Named {
        name: name.to_owned(),
        labels: Vec::new(),
        help: Some(help.to_owned()),
        slot: Slot::Counter(slot),
    });
    let losses: Vec<Named> = losses.collect();
    // Separate, as a program may give one of their names to its own counter; first, so that these
    // keep theirs.
    let mut taken = HashSet::new();
    let mut families = names::families(&losses, prefix, &mut taken);
    families.extend(names::families(metrics, prefix, &mut taken));
    for family in families {
        let names::Family { name, kind, help, metrics } = family;
        writeln!(out, "# TYPE {name} {kind}")?;
        writeln!(out, "# HELP {name} {} (with descendants)", escaped(help))?;
        for metric in metrics {
            let labels = names::labels(metric);
            for (group, path) in &groups {
                let labels = format!("group=\"{path}\"{labels}");
                sample(&name, &labels, metric.slot, group, per_unit, out)?;
            }
        }
    }
    Ok(())
}

fn sample<W: Write>(
    name: &str,
    labels: &str,
    slot: Slot,
    group: &GroupValues,
    per_unit: u32,
    out: &mut W,
) -> fmt::Result {
    match slot {
        Slot::Counter(counter) => {
            writeln!(out, "{name}_total{{{labels}}} {}", group.counter(counter))
        }
        Slot::Gauge(gauge) => {
            let value = group.gauge(gauge) as f64 / f64::from(GAUGE_PER_UNIT);
            writeln!(out, "{name}{{{labels}}} {value}")
        }
        Slot::Histogram(histogram) => {
            buckets(name, labels, &group.histogram(histogram), f64::from(per_unit), out)
        }
    }
}

/// Writes one bucket per power of two. Quarters would make a scrape much larger, for a precision
/// that a rate over its interval seldom has.
fn buckets<W: Write>(
    name: &str,
    labels: &str,
    histogram: &HistogramSnapshot,
    per_unit: f64,
    out: &mut W,
) -> fmt::Result {
    let mut cumulative = 0u64;
    for (index, &count) in histogram.counts().iter().enumerate() {
        cumulative = cumulative.saturating_add(count);
        match histogram.buckets().upper(index) {
            Some(upper) if upper.is_power_of_two() => {
                // With the decimal point that a bound must have.
                let bound = upper as f64 / per_unit;
                writeln!(out, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {cumulative}")?;
            }
            Some(_) => {}
            None => writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {cumulative}")?,
        }
    }
    writeln!(out, "{name}_sum{{{labels}}} {}", histogram.sum() as f64 / per_unit)?;
    writeln!(out, "{name}_count{{{labels}}} {cumulative}")
}
