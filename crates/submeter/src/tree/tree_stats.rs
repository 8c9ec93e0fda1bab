//! The statistics of one tree: one `Rstat` for each section of metrics.
//!
//! Sections share only the groups: each has its own words, marks and flush state, so that a read of
//! one section neither pays for another nor waits for it. Therefore a section may be added while
//! the others are in use: the tree then has another [`Version`], which begins with the previous
//! one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
#[cfg(feature = "export")]
use std::time::SystemTime;

use once_cell::race::OnceBox;
use submeter_percpu::clock::Clock;
use submeter_percpu::process_lock::ProcessMutex;
use submeter_percpu::rcuref::pin;

use crate::error::Error;
use crate::metric::schema::{Metrics, SECTIONS_MAX, Schema, SchemaBuilder, SectionLayout};
use crate::stats::rstat::{FlushReport, Flushed, GroupStats, Rstat, Simulated};

pub(crate) struct TreeStats {
    /// The settings with which the tree was made.
    first: Version,
    /// Later declarations, in order. Each stays, because callers have references to it.
    later: [OnceBox<Version>; SECTIONS_MAX - 1],
    /// Number of later declarations. Written with `declaring` locked.
    versions: AtomicUsize,
    declaring: ProcessMutex<()>,
    simulated: Simulated,
    /// When the tree began to count.
    #[cfg(feature = "export")]
    began: SystemTime,
    epoch: u64,
    /// Number of times that all sections were flushed together.
    sequence: AtomicU64,
}

/// The metrics of a tree from one moment on: those of the previous version, and some more.
pub(crate) struct Version {
    pub(crate) schema: Schema,
    /// In the schema's order; never empty.
    sections: Box<[Arc<Rstat>]>,
}

/// The identity of one set of totals among those of all trees.
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
        simulated: Simulated,
    ) -> Result<TreeStats, Error> {
        let rstat = |layout: &SectionLayout| {
            let levels = schema.levels(layout);
            Rstat::new(layout.words, &levels, groups_max, &simulated).map(Arc::new)
        };
        let sections = schema.layouts().iter().map(rstat).collect::<Result<_, _>>()?;
        // The hash is seeded from the system's randomness, differently each time.
        let epoch = RandomState::new().hash_one(std::process::id());
        Ok(TreeStats {
            first: Version { schema: schema.of_a_tree(), sections },
            later: Default::default(),
            versions: AtomicUsize::new(0),
            declaring: ProcessMutex::new(()),
            simulated,
            #[cfg(feature = "export")]
            began: SystemTime::now(),
            epoch,
            sequence: AtomicU64::new(0),
        })
    }

    /// Returns the schema as it was when the tree was made: quotas, rate limits and CPU time belong
    /// to that one.
    pub(crate) fn first_schema(&self) -> &Schema {
        &self.first.schema
    }

    /// Returns the clock of rates and ages.
    pub(crate) fn clock(&self) -> &Clock {
        &self.simulated.clock
    }

    /// Returns the schema as it is now.
    pub(crate) fn schema(&self) -> &Schema {
        &self.version().schema
    }

    /// Returns the metrics as they are now. A caller that looks at more than one thing must call
    /// this only once: the next version may have more.
    pub(crate) fn version(&self) -> &Version {
        // Acquire: pairs with the Release in `declare`, and so with everything that it did to the
        // version and to the root.
        match self.versions.load(Ordering::Acquire).checked_sub(1) {
            None => &self.first,
            Some(last) => self.later[last].get().expect("it is counted once it is set"),
        }
    }

    pub(crate) fn first(&self) -> &Arc<Rstat> {
        &self.first.sections[0]
    }

    /// Returns the sections that the tree was made with, without the first.
    pub(crate) fn others(&self) -> &[Arc<Rstat>] {
        &self.first.sections[1..]
    }

    /// Returns a section that was added, by its number.
    pub(crate) fn added(&self, section: u32) -> Option<&Arc<Rstat>> {
        let Version { schema, sections } = self.version();
        let at = schema.layouts().iter().position(|layout| layout.id == section)?;
        (at >= self.first.sections.len()).then(|| &sections[at])
    }

    /// Declares a set of metrics; all, some or none of them may exist already.
    ///
    /// `keep_root_words` gets the root's words of each section that is new.
    ///
    /// `M` declares with no lock held, because that runs the caller's code, and again if another
    /// thread has declared something meanwhile.
    pub(crate) fn declare<M: Metrics>(
        &self,
        mut keep_root_words: impl FnMut(u32, GroupStats),
    ) -> Result<M, Error> {
        loop {
            let now = self.version();
            let mut builder = SchemaBuilder::over(&now.schema);
            let keys = M::declare(&mut builder);
            let Some(schema) = builder.extended().map_err(Error::schema)? else {
                return Ok(keys);
            };
            let _alone = self.declaring.lock();
            // Relaxed: written with the lock held, as it is here.
            let versions = self.versions.load(Ordering::Relaxed);
            if !std::ptr::eq(now, self.version()) {
                continue;
            }
            let (mut sections, mut words) = (now.sections.to_vec(), Vec::new());
            for layout in &schema.layouts()[now.sections.len()..] {
                // No bound of its own: each existing group was admitted to the first section.
                let (levels, most) = (schema.levels(layout), u32::MAX as usize);
                let rstat = Arc::new(Rstat::new(layout.words, &levels, most, &self.simulated)?);
                words.push((layout.id, GroupStats::new(&rstat, None)?));
                sections.push(rstat);
            }
            // From here on nothing fails.
            words.into_iter().for_each(|(id, stats)| keep_root_words(id, stats));
            let version = Version { schema, sections: sections.into() };
            // Each version adds a section, and no more sections may be added than fit here.
            let is_set = self.later[versions].set(Box::new(version)).is_ok();
            debug_assert!(is_set, "only the holder of the lock sets one");
            // Release: pairs with the Acquire in `version`.
            self.versions.store(versions + 1, Ordering::Release);
            return Ok(keys);
        }
    }

    /// Returns the number of groups that exist, including those that a single section has not yet
    /// forgotten.
    pub(crate) fn group_count(&self) -> usize {
        self.version().sections.iter().map(|rstat| rstat.len()).max().unwrap_or(0)
    }

    pub(crate) fn flush(&self) -> FlushReport {
        let [first, others @ ..] = &*self.version().sections else {
            unreachable!("a schema has a section")
        };
        others.iter().fold(first.flush(), |report, rstat| report.and(rstat.flush()))
    }

    /// Removes killed groups that have no holder, for a caller that needs their room. May drop
    /// users' values, as [`pin`] may.
    pub(crate) fn reclaim(&self) {
        // A group's reference count keeps its words until a grace period is over after the kill.
        // The first pass hands over this thread's removals, and each pass ends at most one period;
        // two must end. Best effort: a guard of another thread delays them.
        for _ in 0..3 {
            pin().flush();
        }
        self.version().sections.iter().for_each(|rstat| rstat.reclaim());
    }

    /// Flushes a section, unless it is another tree's.
    pub(crate) fn flush_section(&self, section: u32) -> Option<FlushReport> {
        let Version { schema, sections } = self.version();
        let index = schema.layouts().iter().position(|layout| layout.id == section)?;
        Some(sections[index].flush())
    }

    /// Returns when the tree began to count. Always the same, however clocks are set since.
    #[cfg(feature = "export")]
    pub(crate) fn began(&self) -> SystemTime {
        self.began
    }

    /// Returns the number of the tree among those of all processes.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Flushes every section of a version, then runs `copy` before any other flush; returns the
    /// moment.
    ///
    /// Locks the flushes of all sections, in the schema's order. All other code locks only one of
    /// them at a time.
    pub(crate) fn flushed<T>(
        &self,
        version: &Version,
        copy: impl FnOnce(&mut [Flushed<'_>]) -> T,
    ) -> (T, Moment) {
        let mut sections: Vec<_> = version.sections.iter().map(|rstat| rstat.flushed()).collect();
        let at = sections.iter().map(Flushed::at).min().expect("a schema has a section");
        // Relaxed: the flush locks, which are held, order the numbers like the totals.
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        (copy(&mut sections), Moment { at, epoch: self.epoch, sequence })
    }
}
