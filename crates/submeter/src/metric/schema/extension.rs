//! Metrics that are declared in an existing tree: those that it has are found, and new ones get
//! sections of their own.

use std::collections::HashSet;

use super::keys::Key;
use super::metric::{Metric, MetricKind};
use super::{Schema, SchemaError};
use crate::metric::histogram::Buckets;
use crate::metric::unit::UnitKind;

/// The parts of a tree beside those that a [`SchemaBuilder`](super::SchemaBuilder) lists.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) schema: Schema,
    /// The number of the next section that gets a word.
    next: u32,
    /// The metrics that this set has declared, by their numbers.
    declared: HashSet<u16>,
    /// The first error.
    pub(super) problem: Option<SchemaError>,
}

impl Base {
    pub(super) fn of(schema: &Schema) -> Base {
        Base {
            schema: schema.clone(),
            // Each added section has taken one number.
            next: schema.added.start.wrapping_add(schema.inner.sections.len() as u32),
            declared: HashSet::new(),
            problem: None,
        }
    }

    /// Returns how many sections there are.
    pub(super) fn sections(&self) -> usize {
        self.schema.layouts().len()
    }

    /// Takes the next number for a section. Called once the section has a word, so that no number
    /// is lost to sections that stay empty.
    pub(super) fn number(&mut self) -> u32 {
        // A tree has as many numbers as a schema may have sections; more sections are refused.
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// Finds a metric of this name in the tree, and notes an error if it is a different one.
    pub(super) fn find(
        &mut self,
        metrics: &[Metric],
        name: &str,
        kind: MetricKind,
        unit: UnitKind,
        buckets: Option<Buckets>,
    ) -> Option<Key> {
        let Some(known) = metrics.iter().find(|metric| metric.name == name) else {
            self.must_have(name, "a quota", kind != MetricKind::Quota);
            return None;
        };
        if !self.declared.insert(known.key.metric) {
            self.problem.get_or_insert_with(|| SchemaError::Repeated(name.to_owned()));
        }
        if (known.kind, known.unit, known.buckets) != (kind, unit, buckets) {
            self.problem.get_or_insert_with(|| SchemaError::Clash {
                name: name.to_owned(),
                is: described(known.kind, known.unit, known.buckets),
                declared: described(kind, unit, buckets),
            });
        }
        Some(known.key)
    }

    /// Notes that a metric belongs to this set.
    pub(super) fn declare(&mut self, metric: u16) {
        self.declared.insert(metric);
    }

    /// Notes an error unless the tree has this: it can only be there from the start.
    pub(super) fn must_have(&mut self, name: &str, what: &'static str, has: bool) {
        if !has {
            let late = || SchemaError::Late { name: name.to_owned(), what };
            self.problem.get_or_insert_with(late);
        }
    }
}

/// Describes a metric, such as `a counter of bytes`.
fn described(kind: MetricKind, unit: UnitKind, buckets: Option<Buckets>) -> String {
    let of = match unit {
        UnitKind::Count => String::new(),
        unit => format!(" of {unit}"),
    };
    let ends = buckets.map(|buckets| [buckets.upper(0), buckets.upper(buckets.len() - 2)]);
    match ends {
        Some([Some(low), Some(high)]) => format!("a {kind}{of} with buckets from {low} to {high}"),
        _ => format!("a {kind}{of}"),
    }
}
