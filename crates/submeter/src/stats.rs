//! The statistics of one tree: one `Rstat` for each set of metrics.
//!
//! Sets share nothing but the groups: words, marks and flusher are each set's own, so that who reads
//! one neither pays nor waits for another.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::rstat::{FlushReport, Rstat};
use crate::schema::Schema;

pub(crate) struct Stats {
    schema: Schema,
    /// In the schema's order; never empty.
    sets: Box<[Arc<Rstat>]>,
}

impl Stats {
    pub(crate) fn new(
        schema: &Schema,
        groups_max: usize,
        simulated: Option<usize>,
    ) -> Result<Stats, Error> {
        let rstat = |words| Rstat::new(words, groups_max, simulated).map(Arc::new);
        let sets = schema.sets().iter().map(|set| rstat(set.words)).collect::<Result<_, _>>()?;
        Ok(Stats { schema: schema.clone(), sets })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(crate) fn first(&self) -> &Arc<Rstat> {
        &self.sets[0]
    }

    pub(crate) fn others(&self) -> &[Arc<Rstat>] {
        &self.sets[1..]
    }

    /// Groups that exist, those included that only one set still has to forget.
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(|rstat| rstat.len()).max().unwrap_or(0)
    }

    pub(crate) fn flush(&self) -> FlushReport {
        let first = self.sets[0].flush();
        self.sets[1..].iter().fold(first, |report, rstat| report.and(rstat.flush()))
    }

    pub(crate) fn flush_set(&self, index: usize) -> FlushReport {
        self.sets[index].flush()
    }

    /// Flushes every set, then runs `copy` before any other flush; returns when the first flush began.
    pub(crate) fn flushed<T>(&self, mut copy: impl FnMut() -> T) -> (T, Instant) {
        let mut copied = None;
        let at = flushed(&self.sets, &mut || copied = Some(copy()));
        (copied.expect("run once all sets are flushed"), at)
    }
}

/// Holds the flushers of all sets, in the schema's order. Everybody else locks one of them at a time.
fn flushed(sets: &[Arc<Rstat>], copy: &mut dyn FnMut()) -> Instant {
    let Some((first, others)) = sets.split_first() else {
        copy();
        return Instant::now();
    };
    let (later, at) = first.flushed(|| flushed(others, copy));
    later.min(at)
}
