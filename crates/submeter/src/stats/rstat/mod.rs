//! Hierarchical statistics with a lazy flush: an update touches its own group, and
//! ancestors learn of it at the next flush.
//!
//! # One update
//! [`GroupStats::add`] adds to the running CPU's word of the leaf, in a sequence that also tests
//! the mark of the word's line; where the mark is clear, it is set first. No lock, no system call,
//! no allocation, no waiting for a flush.
//!
//! # One flush
//! [`Rstat::flush`] announces that it has begun, finds the marks of every row, reads the marked
//! lines, subtracts their last-read values (`last`), and carries the differences from the deepest
//! level up: each group once, children before parents, by buckets of depth and not by recursion.
//! Words are never reset; an update that races with the flush is either included or found by the
//! next. A flush of a part reads only that part and carries what it found up to the root, so that
//! between flushes a parent always equals its own count plus its children's.
//!
//! Marks stay where they are found ([`kept_lines`]): each flush reads their lines without a
//! barrier, and the next update need not mark them. Only once there are many does a flush clear
//! marks: those of all lines that no longer change, together behind one barrier. For some time
//! after that, no flush clears any. So most flushes make no system call and interrupt no CPU.
//!
//! # Groups that end
//! A dead group is forgotten by the next flush, or together with its batch by the thread that ends
//! the last group of the batch ([`BATCH`]), which flushes those groups alone. That needs no
//! barrier, because no thread adds to their words any longer.
//!
//! # One read
//! [`GroupStats::read`] loads the cached total, and says by how much it can be wrong: see
//! [`reader`].

use std::io;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use submeter_percpu::Area;
use submeter_percpu::clock::Clock;
use submeter_percpu::dirty::KeptView;
use submeter_percpu::storage::{BlockRef, LINE_WORDS, OwnedRows};

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
mod remains;
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

/// The shared rows of the area, by number. (The owned rows hold what the flusher read last, one for
/// each data row.)
pub(crate) mod rows {
    /// Cached totals. Written by the flush, read by any thread.
    pub(crate) const TOTAL: usize = 0;
    /// The batches that updaters have crossed and no flush has added to the totals yet: the two
    /// words of [`Pending`](submeter_percpu::pending::Pending).
    pub(crate) const PENDING_ERROR: [usize; 2] = [1, 2];
    /// The last flush of just this part, in the words of [`flushed`](super::flushed). A block has
    /// at least one line.
    pub(crate) const FLUSHED: usize = 3;
    /// Number of shared rows.
    pub(crate) const COUNT: usize = 4;
}

/// A group's line in [`rows::FLUSHED`]: the flushes of just its part, or, for the root, of the
/// tree. What an earlier group left in the same block is from flushes that began before this group
/// came.
pub(crate) mod flushed {
    /// When the last complete flush began, in ns after the tree's start.
    pub(crate) const AS_OF_NS: usize = 0;
    /// The number of that flush.
    pub(crate) const COVERED: usize = 1;
    /// The number of the last flush that began.
    pub(crate) const BEGUN: usize = 2;
    /// The number of flushes that began.
    pub(crate) const TURN: usize = 3;
}

// A reused block has its words zeroed for its new owner. In this order, no block ever has the
// number of a complete flush beside that of an older flush that began: crossings would be dated
// with the older one, and not count.
const _: () = assert!(flushed::COVERED < flushed::BEGUN);

/// The root's number: its block is the first.
const ROOT: usize = 0;

/// Number of groups that may come, or go, without a flush before the thread that adds the last one
/// makes them known, or forgets them. In batches, so that no thread pays for all of them.
const BATCH: usize = 256;

/// Maximum number handled at once. It is larger than a batch, so that a longer queue, as after a
/// snapshot, gets shorter.
const BATCH_MAX: usize = 2 * BATCH;

/// The period between one flush and the next, which waits for this to be dropped.
pub(crate) struct Flushed<'a> {
    rstat: &'a Rstat,
    state: MutexGuard<'a, FlushState>,
}

/// The statistics of one tree, or of one section of its metrics.
pub(crate) struct Rstat {
    area: Area,
    /// Number of words of a group.
    words: usize,
    /// Number of lines of a group's block. All blocks of the area are alike, so that a line
    /// determines its group.
    lines: usize,
    groups_max: usize,
    /// Number of groups that exist, including dying ones.
    len: AtomicUsize,
    flushes: Coalescer<BlockRef<Lineage>, FlushState>,
    /// The last values read from each data row. Written by the flusher.
    last: Arc<OwnedRows>,
    /// Lines whose marks flushes leave set, for readers.
    kept: Arc<KeptView>,
}

impl Flushed<'_> {
    /// Returns when the flush began.
    pub(crate) fn at(&self) -> Instant {
        self.rstat.flushes.instant(self.rstat.flushes.as_of_ns())
    }

    /// Appends what the group itself had counted when the flush read it: all words of its lines,
    /// and what groups below it that have ended left of gauges.
    ///
    /// Not [`GroupStats::own`], which reads the words as they are now and may include more than the
    /// totals of the group's ancestors.
    pub(crate) fn own(&mut self, stats: &GroupStats, words: &mut Vec<i64>) {
        self.state.own(stats.id(), words);
    }
}

/// What tests simulate instead of using the machine's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated {
    pub(crate) cpus: Option<usize>,
    pub(crate) clock: Clock,
}

impl Rstat {
    /// Makes statistics for groups of `words` words each, of which `levels` are gauges, on this
    /// machine or on a simulated one.
    pub(crate) fn new(
        words: usize,
        levels: &[usize],
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
        let state =
            FlushState::new(area.clone(), Arc::clone(&last), Arc::clone(&kept), lines, levels);
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

    /// Flushes a group and the groups below it, as [`flush`](Rstat::flush) does for a tree. The
    /// counts that it finds are added to the groups above as well.
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
        // Returns freed pages to the system. Locks one range at a time, so that readers wait for
        // one range, not for all.
        self.area.trim_when_due(|lines| {
            self.flushes.lock().discard(lines);
            true
        });
        report
    }

    /// Returns whether a flush that began after `asked` brought all of `scope` up to date.
    fn covers(&self, state: &FlushState, scope: FlushScope, asked: u64) -> bool {
        let FlushScope::Below(id) = scope else { return self.flushes.covers(asked) };
        self.flushes.covers(asked)
            || state.nodes().upward(id).any(|at| {
                // Relaxed: written and read with `flushes` locked. A value left by an earlier group
                // in the same block is lower than any number at which a flush of a younger group
                // was asked for.
                let number = self.flushed_words(at)[flushed::COVERED].load(Ordering::Relaxed);
                number.cast_unsigned() > asked
            })
    }

    /// Flushes, and keeps all other flushes out until the result is dropped: until then, totals
    /// agree with each other.
    pub(crate) fn flushed(&self) -> Flushed<'_> {
        // For its fence: the caller's updates that found their lines marked come before the flush
        // counts marks.
        self.flushes.ask();
        let mut state = self.flushes.lock();
        self.flush_or_panic(&mut state, FlushScope::Tree);
        Flushed { rstat: self, state }
    }

    /// A refused barrier leaves everything as it was, for a flush after the refusal ends. But the
    /// caller must not continue as if this flush had happened.
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
        // First, because the counts of dead groups are marked and are taken below.
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
            // Their words are read and reused only by a flush that clears their marks.
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
        Ok(state.report_after(self.flushes.age(flush.as_of_ns)))
    }

    /// Announces that a flush has begun, before it looks for anything.
    fn note_begun(&self, scope: FlushScope, flush: &Begun) {
        noted(self.flushed_words(scope.root())).begin(flush.number);
    }

    /// Notes when the totals are from. Call it after they are stored.
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
        // Does not wait for the lock, here and in `bury`: a flush in progress takes what waits, and
        // a caller may hold locks that a snapshot is about to take.
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

    /// Forgets dead groups, whose counts stay in the totals above them. For callers that need their
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

    /// Forgets some of the dead groups, unless a flush is in progress.
    pub(crate) fn try_reclaim(&self) {
        if let Some(mut state) = self.flushes.try_lock() {
            self.reclaim_some(&mut state);
        }
    }

    /// Forgets the earliest of the dead groups; returns whether there may be more.
    fn reclaim_some(&self, state: &mut FlushState) -> bool {
        // First: a dead group was announced earlier, so it is known or among the births.
        let mut deaths = self.flushes.take_deaths(BATCH_MAX);
        let Some(births) = self.flushes.take_births_unless_abandoned(BATCH_MAX) else {
            // In a forked child the dead groups stay, like all groups that the child cannot learn
            // of.
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

    /// Counts a new group, if there may be one more. Dead groups count until they are forgotten.
    fn admit(&self) -> Result<(), Error> {
        // Relaxed: the counter alone decides; nothing else is published by it.
        let admitted = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
            (len < self.groups_max).then(|| len + 1)
        });
        admitted.map(drop).map_err(|_| Error::full(self.groups_max))
    }
}
