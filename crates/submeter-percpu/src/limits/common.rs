//! The state shared by the leaves of a tree.

use super::level::Level;
use super::words::{AtomicU32, AtomicU64};
use crate::sync::atomic::Ordering;
use crate::sync::seq_cst_order;

/// Charges read it and hardly ever write it, so CPUs do not contend for its line.
#[derive(Debug)]
pub(crate) struct Common {
    /// Number of visits to leaves made to close them. Read and written in
    /// [visits](super::path::Path::below), which exclude each other.
    visits: AtomicU64,
    /// Number of charges that wait, at any level. Writers: threads that hold the queue.
    awaited: AtomicU32,
}

impl Common {
    pub(crate) fn new() -> Common {
        Common { visits: AtomicU64::new(0), awaited: AtomicU32::new(0) }
    }

    /// Numbers the visit that has just begun.
    pub(super) fn begin_visit(&self) -> u64 {
        // Relaxed, both: one visit at a time.
        let number = self.visits.load(Ordering::Relaxed) + 1;
        self.visits.store(number, Ordering::Relaxed);
        number
    }

    /// Makes every thread that gives back to a level check the queue from now on.
    pub(super) fn await_room(&self, level: &Level) {
        level.await_room();
        // SeqCst, here and in both functions below: a charge that is going to wait announces it
        // here, then tries once more. A release gives back, then reads this; so does an opening
        // before it opens a leaf. One of the two sees the other.
        self.awaited.fetch_add(1, Ordering::SeqCst);
        seq_cst_order();
    }

    pub(super) fn end_await(&self, level: &Level) {
        // SeqCst: see `await_room`.
        self.awaited.fetch_sub(1, Ordering::SeqCst);
        level.end_await();
    }

    pub(super) fn is_awaited(&self) -> bool {
        seq_cst_order();
        // SeqCst: see `await_room`.
        self.awaited.load(Ordering::SeqCst) > 0
    }
}
