//! Hierarchical statistics with a lazy flush: an update touches its own group, and
//! ancestors learn of it at the next flush.
//!
//! # One update
//! [`GroupStats::add`] adds to the running CPU's word of the leaf, in a sequence that also tests
//! the mark of the word's line; where the mark is clear, it is set first. No lock, no system call,
//! no allocation, no waiting for a flush.
//!
//! # One flush
//! [`Rstat::flush`] says that it has begun, finds the marks of every row, reads the marked lines,
//! subtracts what it read of them last (`last`), and carries the differences from the deepest level
//! up: each group once, children before parents, by buckets of depth and not by recursion. Words
//! are never set back; an update that races with the flush is either in or found by the next. A
//! flush of a part reads only that part, and brings what it found up to the root, so that a parent
//! is its own plus its children at any time between flushes.
//!
//! Marks stay where they are found ([`kept_lines`]): each flush reads their lines without a
//! barrier, and the next update need not mark them. Only once they are many does a flush clear
//! marks, those of lines that no longer change together, behind one barrier, and then for some time
//! no flush does. So most flushes make no system call and interrupt no CPU.
//!
//! # Groups that end
//! A dead group is forgotten by the next flush, or with the others of its batch by the thread that
//! ends the last of them ([`BATCH`]): a flush of those alone. It needs no barrier, because no
//! thread adds to their words any more.
//!
//! # One read
//! [`GroupStats::read`] loads the cached total, and says by how much it can be wrong: see
//! [`reader`].

use std::io;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use submeter_percpu::dirty::KeptView;
use submeter_percpu::storage::{BlockRef, LINE_WORDS, OwnedRows};
use submeter_percpu::{Area, TestClock};

use crate::error::Error;
use crate::stats::flush::coalescer::{Begun, Coalescer};
use crate::stats::flush::node_table::Birth;

mod flush_state;
mod group_stats;
mod kept_lines;
#[cfg(test)]
mod kept_tests;
mod other_stats;
mod propagate;
mod reader;
mod scope;
#[cfg(test)]
mod tests;

pub use flush_state::FlushReport;
pub(crate) use group_stats::GroupStats;
pub(crate) use other_stats::OtherStats;

use flush_state::FlushState;
use kept_lines::BUSY_MAX;
use reader::{Lineage, noted, upward};
use scope::FlushScope;

/// The shared rows of the area, by number. (The owned ones hold what the flusher read last, one for
/// each data row.)
pub(crate) mod rows {
    /// Cached totals. Written by the flush, read by any thread.
    pub(crate) const TOTAL: usize = 0;
    /// The batches that updaters have crossed and no flush has in the totals yet: the two words of
    /// [`Pending`](submeter_percpu::pending::Pending).
    pub(crate) const PENDING_ERROR: [usize; 2] = [1, 2];
    /// Of the last flush of just this part, by the words of [`flushed`](super::flushed). A block
    /// has at least a line.
    pub(crate) const FLUSHED: usize = 3;
    /// The number of them.
    pub(crate) const COUNT: usize = 4;
}

/// A group's line in [`rows::FLUSHED`]: the flushes of just its part, or, for the root, of the
/// tree. The traces of an earlier group in the same block are of flushes that began before this
/// group came.
pub(crate) mod flushed {
    /// When the last that is complete began, in ns after the tree's begin.
    pub(crate) const AS_OF_NS: usize = 0;
    /// Its number.
    pub(crate) const COVERED: usize = 1;
    /// The number of the last that began.
    pub(crate) const BEGUN: usize = 2;
    /// The number of flushes that began.
    pub(crate) const TURN: usize = 3;
}

// A block that is used again has the words of its new owner zeroed. In this order none has the
// number of a flush that is complete beside that of an older one that began: what crosses would be
// dated with that, and not count.
const _: () = assert!(flushed::COVERED < flushed::BEGUN);

/// The root's number: it is the first of all blocks.
const ROOT: usize = 0;

/// Once so many groups have come, or so many have gone, without a flush, the thread that adds one
/// more makes them known, or forgets them: in batches, so that none pays for those of all.
const BATCH: usize = 256;

/// The most of them at once: where more wait, as after a snapshot, they become fewer.
const BATCH_MAX: usize = 2 * BATCH;

/// The time between a flush and the next, which waits for it to end.
pub(crate) struct Flushed<'a> {
    rstat: &'a Rstat,
    state: MutexGuard<'a, FlushState>,
}

/// The statistics of one tree, or of one section of its metrics.
pub(crate) struct Rstat {
    area: Area,
    /// Words of a group.
    words: usize,
    /// Lines of a group's block: all blocks of the area are alike, so that a line determines its
    /// group.
    lines: usize,
    groups_max: usize,
    /// Groups that exist, the dying included.
    len: AtomicUsize,
    flushes: Coalescer<BlockRef<Lineage>, FlushState>,
    /// The last values read of each data row. The flusher writes.
    last: Arc<OwnedRows>,
    /// Lines whose marks a flush leaves, for readers.
    kept: Arc<KeptView>,
}

impl Flushed<'_> {
    /// When the flush began.
    pub(crate) fn at(&self) -> Instant {
        self.rstat.flushes.instant(self.rstat.flushes.as_of_ns())
    }

    /// Appends what a group itself had counted when the flush read it, all words of its lines.
    ///
    /// Not [`GroupStats::own`], which reads the words as they are now: it may have more than the
    /// totals of the group's ancestors have.
    pub(crate) fn own(&mut self, stats: &GroupStats, words: &mut Vec<i64>) {
        self.state.own(stats.id(), words);
    }
}

/// What is not the machine's own, for tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated {
    pub(crate) cpus: Option<usize>,
    pub(crate) clock: Option<TestClock>,
}

impl Rstat {
    /// For groups of `words` words each, on this machine or as far as that is simulated.
    pub(crate) fn new(
        words: usize,
        groups_max: usize,
        simulated: &Simulated,
    ) -> Result<Rstat, Error> {
        let rows = |data_rows| (rows::COUNT, data_rows);
        let area = match simulated.cpus {
            Some(cpus) => Area::simulated_with_owner(cpus, rows),
            None => Area::with_owner(rows),
        };
        let (area, last) = area.map_err(Error::storage)?;
        let words = words.max(1);
        let lines = words.div_ceil(LINE_WORDS);
        let (last, kept) = (Arc::new(last), Arc::new(KeptView::new(BUSY_MAX)));
        let state = FlushState::new(area.clone(), Arc::clone(&last), Arc::clone(&kept), lines);
        Ok(Rstat {
            last,
            kept,
            flushes: Coalescer::new(state, simulated.clock.clone()),
            area,
            words,
            lines,
            groups_max,
            len: AtomicUsize::new(0),
        })
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: a statistic.
        self.len.load(Ordering::Relaxed)
    }

    /// Brings all totals up to date, or waits for a flush that began after this call and does so.
    pub(crate) fn flush(&self) -> FlushReport {
        self.request(FlushScope::Tree)
    }

    /// Flushes a group and the groups below it, as [`flush`](Rstat::flush) does a tree. The groups
    /// above learn of the counts that it finds.
    pub(crate) fn flush_below(&self, stats: &GroupStats) -> FlushReport {
        self.request(if stats.is_root() {
            FlushScope::Tree
        } else {
            FlushScope::Below(stats.id() as usize)
        })
    }

    fn request(&self, scope: FlushScope) -> FlushReport {
        self.answer(scope, self.flushes.ask())
    }

    fn answer(&self, scope: FlushScope, asked: u64) -> FlushReport {
        let mut state = self.flushes.lock();
        if self.covers(&state, scope, asked) {
            return FlushReport { joined: true, ..state.report() };
        }
        let report = self.flush_or_panic(&mut state, scope);
        drop(state);
        // Return freed pages to the system, and lock one range at a time: readers then wait for one
        // range, not for all.
        self.area.trim_when_due(|lines| {
            self.flushes.lock().discard(lines);
            true
        });
        report
    }

    /// Whether a flush that began after `asked` brought all of `scope` up to date.
    fn covers(&self, state: &FlushState, scope: FlushScope, asked: u64) -> bool {
        let FlushScope::Below(id) = scope else { return self.flushes.covers(asked) };
        self.flushes.covers(asked)
            || state.nodes().upward(id).any(|at| {
                // Relaxed: written and read with `flushes` locked. A value of an earlier group in
                // the same block is lower than any number at which a younger group was asked.
                let number = self.flushed_words(at)[flushed::COVERED].load(Ordering::Relaxed);
                number.cast_unsigned() > asked
            })
    }

    /// Flushes, and keeps all other flushes out until the result is dropped: totals agree with each
    /// other so long.
    pub(crate) fn flushed(&self) -> Flushed<'_> {
        // For its fence: a caller's update that found its line marked comes before the flush counts
        // marks.
        self.flushes.ask();
        let mut state = self.flushes.lock();
        self.flush_or_panic(&mut state, FlushScope::Tree);
        Flushed { rstat: self, state }
    }

    /// A refused barrier leaves everything as it was, for a flush after the refusal ends; but
    /// the caller must not go on as if this one had been.
    fn flush_or_panic(&self, state: &mut FlushState, scope: FlushScope) -> FlushReport {
        self.flush_locked(state, scope, Area::try_barrier).unwrap_or_else(|error| {
            panic!("the kernel refused a barrier that it granted before, so nothing was flushed: {error}")
        })
    }

    fn flush_locked(
        &self,
        state: &mut FlushState,
        scope: FlushScope,
        barrier: impl FnOnce(&Area) -> io::Result<()>,
    ) -> io::Result<FlushReport> {
        let flush = self.flushes.begin();
        self.note_begun(scope, &flush);
        // First: the counts of dead groups are marked, and are taken below.
        let mut deaths = self.flushes.take_deaths(usize::MAX);
        let announced = || self.flushes.take_births(usize::MAX);
        // A flush of a part asks for the parents of what is marked. Updates that returned before
        // have been announced.
        state.learn(announced());
        if scope != FlushScope::Tree && !deaths.is_empty() {
            let mut has = scope.groups(state.nodes());
            let elsewhere = |id: &mut u32| !has(*id as usize);
            self.flushes.defer(deaths.extract_if(.., elsewhere).collect());
        }
        let mut dead = deaths.clone();
        dead.sort_unstable();
        state.take(scope, &dead, flush.as_of_ns, announced);
        let propagated = state.propagate(scope, barrier);
        if !matches!(propagated, Ok(true)) {
            // Their words are read, and used again, by a flush that clears their marks.
            self.flushes.defer(std::mem::take(&mut deaths));
        }
        propagated?;
        self.note_flushed(scope, &flush);
        state.finish();
        if !deaths.is_empty() {
            // Relaxed: a statistic.
            self.len.fetch_sub(deaths.len(), Ordering::Relaxed);
            state.forget(&mut deaths);
        }
        Ok(state.report_after(flush.elapsed()))
    }

    /// Says that a flush has begun, before it looks for anything.
    fn note_begun(&self, scope: FlushScope, flush: &Begun) {
        noted(self.flushed_words(scope.root())).begin(flush.number);
    }

    /// Notes when the totals are from, after they were stored.
    fn note_flushed(&self, scope: FlushScope, flush: &Begun) {
        let words = self.flushed_words(scope.root());
        noted(words).complete(flush.number);
        // Release: after the totals; pairs with the Acquire in `GroupStats::read_words`.
        words[flushed::AS_OF_NS].store(flush.as_of_ns.cast_signed(), Ordering::Release);
        if scope == FlushScope::Tree {
            self.flushes.complete(flush);
        }
    }

    fn flushed_words(&self, id: usize) -> &[AtomicI64; LINE_WORDS] {
        self.flushed_line(id * self.lines)
    }

    /// Announces a group; see [`Coalescer::announce`].
    fn announce(&self, birth: Birth<BlockRef<Lineage>>) {
        // Not waited for, here and in `bury`: a flush under way takes what waits, and a caller may
        // hold locks that a snapshot is about to ask for.
        if self.flushes.announce(birth) >= BATCH
            && let Some(mut state) = self.flushes.try_lock()
        {
            state.learn(self.flushes.take_births(BATCH_MAX));
        }
    }

    /// Notes that a group's last handle is gone; see [`Coalescer::bury`].
    fn bury(&self, id: u32) {
        if self.flushes.bury(id) >= BATCH
            && let Some(mut state) = self.flushes.try_lock()
        {
            self.reclaim_some(&mut state);
            drop(state);
            // The owned rows may be trimmed later: do not wait for the lock.
            self.area.trim_when_due(|lines| {
                let state = self.flushes.try_lock();
                state.map(|mut state| state.discard(lines)).is_some()
            });
        }
    }

    /// Forgets dead groups: their counts stay in the totals above them. For callers that need their
    /// room.
    pub(crate) fn reclaim(&self) {
        while self.reclaim_some(&mut self.flushes.lock()) {}
    }

    /// Overrides the number of groups; returns the old one.
    #[cfg(test)]
    pub(crate) fn pretend_len(&self, len: usize) -> usize {
        // Relaxed: as in `admit`.
        self.len.swap(len, Ordering::Relaxed)
    }

    /// Forgets some of the dead, unless a flush is under way.
    pub(crate) fn try_reclaim(&self) {
        if let Some(mut state) = self.flushes.try_lock() {
            self.reclaim_some(&mut state);
        }
    }

    /// Forgets some of the dead, the earliest; returns whether there may be more.
    fn reclaim_some(&self, state: &mut FlushState) -> bool {
        // First: a dead group was announced before, and is among the births.
        let mut deaths = self.flushes.take_deaths(BATCH_MAX);
        let Some(births) = self.flushes.take_births_unless_abandoned(BATCH_MAX) else {
            // In a forked child the dead stay, as does all that it cannot learn of.
            self.flushes.defer(deaths);
            return false;
        };
        let all_known = births.len() < BATCH_MAX;
        state.learn(births);
        if !all_known {
            self.flushes.defer(deaths);
            return true;
        }
        deaths.sort_unstable();
        // Relaxed: a statistic.
        self.len.fetch_sub(deaths.len(), Ordering::Relaxed);
        state.reclaim(&mut deaths);
        deaths.len() == BATCH_MAX
    }

    /// Counts a new group, if there may be one more. The dead count until they are forgotten.
    fn admit(&self) -> Result<(), Error> {
        // Relaxed: the counter alone decides; nothing else is published by it.
        let admitted = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
            (len < self.groups_max).then(|| len + 1)
        });
        admitted.map(drop).map_err(|_| Error::full(self.groups_max))
    }
}
