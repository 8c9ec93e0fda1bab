//! Hierarchical statistics. Placeholder engine: shared atomics at every level.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::reading::Reading;
use crate::schema::Schema;

/// What a flush did.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FlushReport {
    /// Groups whose totals were visited, each once.
    pub groups: usize,
}

pub(crate) struct Rstat {
    words: usize,
    len: AtomicUsize,
    max: usize,
}

pub(crate) struct Leaf {
    totals: Arc<[AtomicI64]>,
    ancestors: Vec<Arc<[AtomicI64]>>,
}

impl Rstat {
    pub(crate) fn new(schema: &Schema, max: usize) -> Result<Rstat, Error> {
        Ok(Rstat { words: schema.words(), len: AtomicUsize::new(0), max })
    }
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
    pub(crate) fn flush(&self) -> FlushReport {
        FlushReport::default()
    }
    pub(crate) fn flushed<T>(&self, f: impl FnOnce() -> T) -> (T, Instant) {
        let at = Instant::now();
        (f(), at)
    }
    pub(crate) fn read(&self, leaf: &Leaf, word: usize) -> Reading<i64> {
        Reading::new(leaf.total(word), 0, Duration::ZERO)
    }
}

impl Leaf {
    pub(crate) fn new(rstat: &Arc<Rstat>, parent: Option<&Leaf>) -> Result<Leaf, Error> {
        if rstat.len.fetch_add(1, Ordering::Relaxed) >= rstat.max {
            rstat.len.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::full(rstat.max));
        }
        let totals = (0..rstat.words).map(|_| AtomicI64::new(0)).collect();
        let ancestors = parent.map_or_else(Vec::new, |p| {
            std::iter::once(Arc::clone(&p.totals)).chain(p.ancestors.iter().cloned()).collect()
        });
        Ok(Leaf { totals, ancestors })
    }
    #[inline]
    pub(crate) fn add(&self, word: usize, n: i64) {
        self.totals[word].fetch_add(n, Ordering::Relaxed);
        for ancestor in &self.ancestors {
            ancestor[word].fetch_add(n, Ordering::Relaxed);
        }
    }
    pub(crate) fn total(&self, word: usize) -> i64 {
        self.totals[word].load(Ordering::Relaxed)
    }
}
