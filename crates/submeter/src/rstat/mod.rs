//! Hierarchical statistics with a lazy flush: the leaf is charged, ancestors learn when somebody
//! asks.
//!
//! # One update
//! [`Leaf::add`] adds to the running CPU's word of the leaf, in a sequence that also tests the mark of
//! the word's line; where the mark is clear, it is set first. No lock, no system call, no allocation,
//! no waiting for a flush.
//!
//! # One flush
//! [`Rstat::flush`] takes the marks of every row, notes the drift of the groups they are of, takes
//! the marks that came meanwhile, issues one barrier, reads the marked lines, subtracts what it read
//! of them last (`last`), and carries the differences from the deepest level up: each group once,
//! children before parents, by buckets of depth and not by recursion. Words are never set back; an
//! update that races with the flush is either in or left marked for the next.
//!
//! # One read
//! [`Rstat::read`] loads the cached total, and says by how much it can be wrong: nothing, if no line is marked; otherwise
//! what crossed a batch boundary since the last flush (`drift`, kept by the updaters that crossed),
//! plus less than a batch for each group and row below.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_percpu::Area;
use submeter_percpu::storage::LINE_WORDS;

use crate::error::Error;
use crate::reading::Reading;

mod flush;
mod leaf;

pub use flush::FlushReport;
pub(crate) use leaf::Leaf;

use flush::{Flusher, Node};

/// The owner's rows of the area, by number; the `last` rows follow, one for each data row.
pub(crate) mod rows {
    /// Cached totals. Written by the flusher, read by anybody.
    pub(crate) const TOTAL: usize = 0;
    /// Differences on their way up; the flusher's own, zero between flushes.
    pub(crate) const PENDING: usize = 1;
    /// What crossed batch boundaries and is not in the total yet. Updaters add, the flusher subtracts.
    pub(crate) const DRIFT: usize = 2;
    /// The drift that the running flush is going to subtract; the flusher's own.
    pub(crate) const TAKEN: usize = 3;
    /// What the flusher read last, for data row 0; the flusher's own.
    pub(crate) const LAST: usize = 4;
}

/// The statistics of one tree, or of one set of its metrics.
pub(crate) struct Rstat {
    area: Area,
    /// Words of a group.
    words: usize,
    /// Lines of a group's block: all blocks of the area are alike, so that a line tells its group.
    lines: usize,
    groups_max: usize,
    /// Groups that exist, the dying included.
    len: AtomicUsize,
    /// Groups that the flusher does not know yet. Locked for a push or a swap only.
    births: Mutex<Vec<Node>>,
    /// Groups whose last handle is gone. Locked as `births`.
    deaths: Mutex<Vec<u32>>,
    flusher: Mutex<Flusher>,
    /// Flushes begun: what coalescing compares.
    begun: AtomicU64,
    /// Odd while a flush runs. Written with `flusher` locked.
    sequence: AtomicU64,
    /// When the last complete flush began, in ns after `epoch`.
    as_of_ns: AtomicU64,
    epoch: Instant,
}

impl Rstat {
    /// For groups of `words` words each.
    pub(crate) fn new(words: usize, groups_max: usize) -> Result<Rstat, Error> {
        let area = Area::new(|data_rows| rows::LAST + data_rows).map_err(Error::storage)?;
        let words = words.max(1);
        let lines = words.div_ceil(LINE_WORDS);
        Ok(Rstat {
            flusher: Mutex::new(Flusher::new(area.clone(), lines)),
            area,
            words,
            lines,
            groups_max,
            len: AtomicUsize::new(0),
            births: Mutex::default(),
            deaths: Mutex::default(),
            begun: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            as_of_ns: AtomicU64::new(0),
            epoch: Instant::now(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: a statistic.
        self.len.load(Ordering::Relaxed)
    }

    /// Brings totals up to date, or waits for a flush that began after this call and does so.
    pub(crate) fn flush(&self) -> FlushReport {
        // SeqCst: pairs with the increment in `flush_locked`: a flush with a higher number takes its
        // marks after this load, so it covers every update that returned before it.
        let asked = self.begun.load(Ordering::SeqCst);
        let mut flusher = self.flusher.lock();
        if flusher.number > asked {
            return FlushReport { joined: true, ..flusher.report };
        }
        let report = self.flush_locked(&mut flusher);
        drop(flusher);
        // What the dead had goes back to the system. Without the lock: readers need not wait for it.
        self.area.trim_when_due();
        report
    }

    /// Flushes, then runs `copy` before any other flush: totals agree with each other in it.
    pub(crate) fn flushed<T>(&self, copy: impl FnOnce() -> T) -> (T, Instant) {
        let mut flusher = self.flusher.lock();
        self.flush_locked(&mut flusher);
        // Relaxed: written with `flusher` locked, as it is here.
        let as_of = Duration::from_nanos(self.as_of_ns.load(Ordering::Relaxed));
        (copy(), self.epoch + as_of)
    }

    fn flush_locked(&self, flusher: &mut Flusher) -> FlushReport {
        // SeqCst: see `flush`; before the marks are taken.
        flusher.number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let start = Instant::now();
        // SeqCst: before the marks are taken; pairs with the loads in `read`.
        self.sequence.fetch_add(1, Ordering::SeqCst);
        // Deaths first: what the dead counted is marked, and is taken below. Births after the marks
        // were taken: whoever marked had its group announced before.
        let deaths = std::mem::take(&mut *self.deaths.lock());
        self.take_marked(flusher);
        if flusher.note_drift() {
            // Once more: an add may have marked after the first look and carried before its drift was
            // noted. That drift will be subtracted, so this flush must read the add as well.
            self.take_marked(flusher);
        }
        flusher.carry_up();
        // Relaxed: a statistic.
        self.len.fetch_sub(deaths.len(), Ordering::Relaxed);
        flusher.forget(deaths);
        let as_of = start.duration_since(self.epoch);
        // Release: after the totals; pairs with the Acquire in `read`.
        self.as_of_ns.store(as_of.as_nanos() as u64, Ordering::Release);
        // SeqCst: after the totals; pairs with the loads in `read`.
        self.sequence.fetch_add(1, Ordering::SeqCst);
        flusher.report.duration = start.elapsed();
        flusher.report
    }

    fn take_marked(&self, flusher: &mut Flusher) {
        flusher.take_marked();
        let births = std::mem::take(&mut *self.births.lock());
        births.into_iter().for_each(|node| flusher.learn(node));
    }

    /// Reads a cached total. O(1): one load for each row beside it.
    pub(crate) fn read(&self, leaf: &Leaf, word: usize, batch_mask: u64) -> Reading<i64> {
        // Acquire: before the total, so that the total is of this flush or of a later one: an age that is
        // one flush old is a true age.
        let as_of = Duration::from_nanos(self.as_of_ns.load(Ordering::Acquire));
        // Before the total too: groups that have left it by now are in the total.
        let population = leaf.population();
        // SeqCst, all the way down: a flush stores the total, then subtracts the drift, then ends the
        // sequence; this loads in the opposite order, so that whatever it misses of the total it
        // still sees in the drift.
        let sequence = self.sequence.load(Ordering::SeqCst);
        let drift = leaf.shared(rows::DRIFT, word).load(Ordering::SeqCst).cast_unsigned();
        let value = leaf.shared(rows::TOTAL, word).load(Ordering::SeqCst);
        // No mark set and no flush under way or ended since: all that returned is in `value`.
        // SeqCst again: after the marks were looked at, and paired with the increments of a flush.
        let exact = sequence.is_multiple_of(2)
            && !self.area.any_marked()
            && self.sequence.load(Ordering::SeqCst) == sequence;
        let bound = if exact {
            0
        } else {
            let words = population * self.area.rows_in_use().len().max(1) as u64;
            drift.saturating_add(words.saturating_mul(batch_mask))
        };
        Reading::new(value, bound, self.epoch.elapsed().saturating_sub(as_of))
    }

    /// Counts a new group, if there may be one more. The dead count until a flush has seen them.
    fn admit(&self) -> Result<(), Error> {
        // Relaxed: the counter alone decides; nothing else is published by it.
        let admitted = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
            (len < self.groups_max).then_some(len + 1)
        });
        admitted.map(drop).map_err(|_| Error::full(self.groups_max))
    }

    fn announce(&self, node: Node) {
        self.births.lock().push(node);
    }

    fn bury(&self, id: u32) {
        self.deaths.lock().push(id);
    }
}
