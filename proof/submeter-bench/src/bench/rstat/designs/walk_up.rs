//! The naive design: an atomic add to the group and to each of its ancestors.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Design, NONE, Shape};

const LINE_WORDS: usize = 8;

/// Words that fill one cache line.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicI64; LINE_WORDS]);

/// A few lines of metrics per group, shared by all CPUs.
pub(in crate::bench::rstat) struct WalkUp {
    parents: Vec<u32>,
    /// Lines per group.
    lines: usize,
    /// The lines of the first group, then those of the next.
    totals: Vec<Line>,
}

impl WalkUp {
    #[inline]
    fn word(&self, group: u32, metric: usize) -> &AtomicI64 {
        let line = group as usize * self.lines + metric / LINE_WORDS;
        &self.totals[line].0[metric % LINE_WORDS]
    }
}

impl Design for WalkUp {
    type Slot = ();

    fn mark_bytes(_shape: &Shape) -> f64 {
        0.0
    }

    fn new(shape: &Shape) -> io::Result<WalkUp> {
        let lines = shape.metrics.div_ceil(LINE_WORDS);
        let totals = (0..lines * shape.groups()).map(|_| Line::default()).collect();
        Ok(WalkUp { parents: shape.parents.clone(), lines, totals })
    }

    fn register(&self) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn update(&self, (): (), group: u32, metric: usize, n: i64) {
        let mut at = group;
        while at != NONE {
            // Relaxed: a statistic.
            self.word(at, metric).fetch_add(n, Ordering::Relaxed);
            at = self.parents[at as usize];
        }
    }

    /// Does nothing: this design's merit is that it needs no flush.
    fn flush(&self, _root: u32, _holds_ns: &mut Vec<u64>) -> u64 {
        0
    }

    fn settle(&self) {}

    fn total(&self, group: u32, metric: usize) -> i64 {
        // Relaxed: a statistic.
        self.word(group, metric).load(Ordering::Relaxed)
    }
}
