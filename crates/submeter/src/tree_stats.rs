//! The statistics of one tree: one `Rstat` for each section of metrics.
//!
//! Sections share only the groups: each has its own words, marks and flush state, so that a read of
//! one section neither pays for another nor waits for it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use submeter_percpu::rcuref::pin;

use crate::error::Error;
use crate::rstat::{FlushReport, Flushed, Rstat};
use crate::schema::Schema;

pub(crate) struct TreeStats {
    schema: Schema,
    /// In the schema's order; never empty.
    sections: Box<[Arc<Rstat>]>,
    epoch: u64,
    /// How often all sections were flushed together.
    sequence: AtomicU64,
}

/// Which totals they are, among all of all trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// When the first flush began.
    pub(crate) at: Instant,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
}

impl TreeStats {
    pub(crate) fn new(
        schema: &Schema,
        groups_max: usize,
        simulated: Option<usize>,
    ) -> Result<TreeStats, Error> {
        let rstat = |words| Rstat::new(words, groups_max, simulated).map(Arc::new);
        let sections =
            schema.layouts().iter().map(|layout| rstat(layout.words)).collect::<Result<_, _>>()?;
        // The seed of the hash is the system's randomness, and each has another one.
        let epoch = RandomState::new().hash_one(std::process::id());
        let sequence = AtomicU64::new(0);
        Ok(TreeStats { schema: schema.clone(), sections, epoch, sequence })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn first(&self) -> &Arc<Rstat> {
        &self.sections[0]
    }

    pub(crate) fn others(&self) -> &[Arc<Rstat>] {
        &self.sections[1..]
    }

    /// Returns the number of groups that exist, including those that only one section still has to
    /// forget.
    pub(crate) fn group_count(&self) -> usize {
        self.sections.iter().map(|rstat| rstat.len()).max().unwrap_or(0)
    }

    pub(crate) fn flush(&self) -> FlushReport {
        let first = self.sections[0].flush();
        self.sections[1..].iter().fold(first, |report, rstat| report.and(rstat.flush()))
    }

    /// Removes killed groups that have no holder, for a caller that needs their room. May run the
    /// drops of users' values, as [`pin`] may.
    pub(crate) fn reclaim(&self) {
        // A group's reference count keeps its words until a grace period is over after the kill.
        // The first look hands over what this thread has removed, and each ends at most one period,
        // of which two must pass. Best effort: a guard of another thread delays them.
        for _ in 0..3 {
            pin().flush();
        }
        self.sections.iter().for_each(|rstat| rstat.reclaim());
    }

    pub(crate) fn flush_section(&self, index: usize) -> FlushReport {
        self.sections[index].flush()
    }

    /// When the tree began to count.
    #[cfg(feature = "export")]
    pub(crate) fn began(&self) -> Instant {
        self.sections[0].began()
    }

    /// Flushes every section, then runs `copy` before any other flush; returns which moment that
    /// was.
    ///
    /// Locks the flushes of all sections, in the schema's order. All other code locks only one of
    /// them at a time.
    pub(crate) fn flushed<T>(&self, copy: impl FnOnce(&mut [Flushed<'_>]) -> T) -> (T, Moment) {
        let mut sections: Vec<_> = self.sections.iter().map(|rstat| rstat.flushed()).collect();
        let at = sections.iter().map(Flushed::at).min().expect("a schema has a section");
        // Relaxed: the locks of the flushes, which are held, order the numbers as the totals.
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        (copy(&mut sections), Moment { at, epoch: self.epoch, sequence })
    }
}
