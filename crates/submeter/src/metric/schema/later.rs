//! A schema that extends a tree's schema.

use super::builder::SchemaBuilder;
use super::extension::Base;
use super::{FIRST_SECTION, Schema, SchemaError, SectionLayout};

/// The name of an added section whose set names none.
const ADDED_SECTION: &str = "added";

impl SchemaBuilder {
    /// Returns a builder that begins with what the tree has.
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
            cpu_errors: inner.cpu_error.into_iter().collect(),
            metering: inner.metering,
            miscounted: None,
            cpu_budgets: inner.cpu_budget.into_iter().collect(),
            #[cfg(feature = "perf")]
            events: inner.events.to_vec(),
            base: Some(Base::of(schema)),
        }
    }

    /// Closes the schema that a tree has from now on; `None` if everything exists already.
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
            // Two libraries may use the same name, and so may an older version of this one.
            let taken = |name: &str| self.sections.iter().any(|other| other.name == name);
            let numbered = (2..).map(|n| format!("{}_{n}", section.name));
            let names = std::iter::once(section.name.clone()).chain(numbered);
            section.name = names.into_iter().find(|name| !taken(name)).unwrap_or_default();
            self.sections.push(section);
        }
        self.closed(base.schema.added).map(Some)
    }
}
