//! Metrics that are declared in a tree that exists: those that it has are found, and what is new
//! gets sections of its own.

use std::collections::HashSet;

use super::builder::SchemaBuilder;
use super::keys::Key;
use super::metric::{Metric, MetricKind};
use super::{FIRST_SECTION, Schema, SchemaError, SectionLayout};
use crate::metric::histogram::Buckets;
use crate::metric::unit::UnitKind;

/// The name of a section that was added and whose set names none.
const ADDED_SECTION: &str = "added";

/// What a tree has, beside what a [`SchemaBuilder`] lists.
#[derive(Debug)]
pub(super) struct Base {
    schema: Schema,
    /// The number of the next section that gets a word.
    next: u32,
    /// The metrics that this set has declared, by their numbers.
    declared: HashSet<u16>,
    /// The first thing that cannot be.
    problem: Option<SchemaError>,
}

impl Base {
    /// Returns how many sections there are.
    pub(super) fn sections(&self) -> usize {
        self.schema.layouts().len()
    }

    /// Returns the number for a section: once it has a word, so that none is lost to sections that
    /// stay empty.
    pub(super) fn number(&mut self) -> u32 {
        // A tree has as many numbers as a schema may have sections: more are refused.
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// Finds a metric of this name among those of the tree, and notes what is wrong with it.
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

    /// Notes that a metric is of this set.
    pub(super) fn declare(&mut self, metric: u16) {
        self.declared.insert(metric);
    }

    /// Notes what the tree can only have from its beginning, unless it has it.
    pub(super) fn must_have(&mut self, name: &str, what: &'static str, has: bool) {
        if !has {
            let late = || SchemaError::Late { name: name.to_owned(), what };
            self.problem.get_or_insert_with(late);
        }
    }
}

impl SchemaBuilder {
    /// Begins with what a tree has.
    pub(crate) fn over(schema: &Schema) -> SchemaBuilder {
        let inner = &schema.inner;
        let mut sections = inner.sections.clone();
        sections.push(SectionLayout::new(FIRST_SECTION));
        SchemaBuilder {
            metrics: inner.metrics.clone(),
            current: sections.len() - 1,
            sections,
            quotas: inner.quotas,
            rate_limits: inner.rate_limits.clone(),
            cpu_times: inner.cpu_time.into_iter().collect(),
            off_cpus: inner.off_cpu.into_iter().collect(),
            cpu_budgets: inner.cpu_budget.into_iter().collect(),
            #[cfg(feature = "perf")]
            events: inner.events.to_vec(),
            base: Some(Base {
                schema: schema.clone(),
                // Each section that was added has taken one.
                next: schema.added.start.wrapping_add(inner.sections.len() as u32),
                declared: HashSet::new(),
                problem: None,
            }),
        }
    }

    /// Closes the schema that a tree has from now on; `None` if all is there already.
    pub(crate) fn extended(mut self) -> Result<Option<Schema>, SchemaError> {
        let Some(base) = self.base.take() else { return self.build().map(Some) };
        if let Some(problem) = base.problem {
            return Err(problem);
        }
        let mut added = self.sections.split_off(base.schema.layouts().len());
        added.retain(|section| section.words > 0);
        if added.is_empty() {
            return Ok(None);
        }
        for mut section in added {
            if section.name == FIRST_SECTION {
                ADDED_SECTION.clone_into(&mut section.name);
            }
            // Two libraries may have named it alike, and so did an older version of this one.
            let taken = |name: &str| self.sections.iter().any(|other| other.name == name);
            let numbered = (2..).map(|n| format!("{}_{n}", section.name));
            let names = std::iter::once(section.name.clone()).chain(numbered);
            section.name = names.into_iter().find(|name| !taken(name)).unwrap_or_default();
            self.sections.push(section);
        }
        self.closed(base.schema.added).map(Some)
    }
}

/// Describes a metric: `a counter of bytes`.
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
