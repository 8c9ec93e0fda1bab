//! Hierarchical statistics with a lazy flush: the leaf is charged, ancestors learn when somebody
//! asks.
//!
//! # One update
//! [`Leaf::add`] adds to the running CPU's word of the leaf, in a sequence that also tests the mark of
//! the word's line; where the mark is clear, it is set first. No lock, no system call, no allocation,
//! no waiting for a flush.
//!
//! # One flush
//! [`Rstat::flush`] notes the drift, takes the marks of every row, issues one barrier, reads the marked
//! lines, subtracts what it read of them last (`last`), and carries the differences from the deepest
//! level up: each group once, children before parents, by buckets of depth and not by recursion. Words
//! are never set back; an update that races with the flush is either in or left marked for the next.
//! A flush of a part takes only the marks of that part, and brings what it found up to the root, so that
//! a parent is its own plus its children at any time between flushes.
//!
//! # One read
//! [`Rstat::read`] loads the cached total, and says by how much it can be wrong: nothing, if no mark is out;
//! otherwise what crossed a batch boundary since the last flush (`drift`, kept by the updaters that
//! crossed), plus less than a batch for each line that may hold more: those that are marked, and
//! in each row no more than there are groups below. An add that crossed and has not said so yet
//! (`announced`) may hide as much again.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_percpu::Area;
use submeter_percpu::storage::LINE_WORDS;

use crate::error::Error;
use crate::reading::Reading;

mod book;
mod flush;
mod leaf;
mod nodes;
#[cfg(test)]
mod tests;

pub use flush::FlushReport;
pub(crate) use leaf::Leaf;

use flush::{Engine, Scope};
use nodes::Birth;

/// The shared rows of the area, by number. (The owned ones hold what the flusher read last, one for each
/// data row.)
pub(crate) mod rows {
    /// Cached totals. Written by the flusher, read by anybody.
    pub(crate) const TOTAL: usize = 0;
    /// What crossed batch boundaries and is not in the total yet. Updaters add and mark, the flusher
    /// subtracts.
    pub(crate) const DRIFT: usize = 1;
    /// Of the last flush of just this part: when it began in the first word, its number in the second. A
    /// block has at least a line.
    pub(crate) const FLUSHED: usize = 2;
    /// How many there are.
    pub(crate) const COUNT: usize = 3;
}

/// Flushes of parts that find this many dead groups flush the whole tree: they forget their own dead only.
const DEATHS_MAX: usize = 256;

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
    births: Mutex<Vec<Birth>>,
    /// Groups whose last handle is gone. Locked as `births`.
    deaths: Mutex<Vec<u32>>,
    engine: Mutex<Engine>,
    /// Flushes begun: what coalescing compares.
    begun: AtomicU64,
    /// Updates so large, or so many, that the drift may have wrapped around, since the last flush of the whole
    /// tree. Flushes of parts become one while there are any.
    wild: AtomicU64,
    /// When the last flush of the whole tree began, in ns after `epoch`.
    as_of_ns: AtomicU64,
    epoch: Instant,
}

impl Rstat {
    /// For groups of `words` words each, on this machine, or on one of so many simulated CPUs.
    pub(crate) fn new(
        words: usize,
        groups_max: usize,
        simulated: Option<usize>,
    ) -> Result<Rstat, Error> {
        let rows = |data_rows| (rows::COUNT, data_rows);
        let area = match simulated {
            Some(cpus) => Area::simulated_with_owner(cpus, rows),
            None => Area::with_owner(rows),
        };
        let (area, last) = area.map_err(Error::storage)?;
        let words = words.max(1);
        let lines = words.div_ceil(LINE_WORDS);
        Ok(Rstat {
            engine: Mutex::new(Engine::new(area.clone(), last, lines)),
            area,
            words,
            lines,
            groups_max,
            len: AtomicUsize::new(0),
            births: Mutex::default(),
            deaths: Mutex::default(),
            begun: AtomicU64::new(0),
            wild: AtomicU64::new(0),
            as_of_ns: AtomicU64::new(0),
            epoch: Instant::now(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: a statistic.
        self.len.load(Ordering::Relaxed)
    }

    /// Brings all totals up to date, or waits for a flush that began after this call and does so.
    pub(crate) fn flush(&self) -> FlushReport {
        self.request(Scope::Tree)
    }

    /// As [`flush`](Rstat::flush), for a group and what is below it. The groups above learn what that finds.
    pub(crate) fn flush_below(&self, leaf: &Leaf) -> FlushReport {
        self.request(if leaf.is_root() { Scope::Tree } else { Scope::Below(leaf.id() as usize) })
    }

    fn request(&self, scope: Scope) -> FlushReport {
        self.answer(scope, self.ask())
    }

    /// The number of the last flush that began: one with a higher number covers every update that returned
    /// before this call.
    fn ask(&self) -> u64 {
        // SeqCst: pairs with the increment in `flush_locked`: a flush with a higher number takes its
        // marks after this load.
        self.begun.load(Ordering::SeqCst)
    }

    fn answer(&self, scope: Scope, asked: u64) -> FlushReport {
        let mut engine = self.engine.lock();
        if self.covers(&engine, scope, asked) {
            return FlushReport { joined: true, ..engine.report() };
        }
        let report = self.flush_or_panic(&mut engine, scope);
        drop(engine);
        // What the dead had goes back to the system. Without the lock but for what only its holder has:
        // readers wait for one range of pages, not for all.
        self.area.trim_when_due(|lines| self.engine.lock().discard(lines));
        report
    }

    /// Whether a flush that began after `asked` brought all of `scope` up to date.
    fn covers(&self, engine: &Engine, scope: Scope, asked: u64) -> bool {
        let Scope::Below(id) = scope else { return engine.number > asked };
        engine.number > asked
            || engine.upward(id).any(|at| {
                // Relaxed: written and read with `engine` locked. Of an earlier group in the same
                // block it is lower than what a group that is younger was asked at.
                let number = self.flushed_words(at)[1].load(Ordering::Relaxed);
                number.cast_unsigned() > asked
            })
    }

    /// Flushes, then runs `copy` before any other flush: totals agree with each other in it.
    pub(crate) fn flushed<T>(&self, copy: impl FnOnce() -> T) -> (T, Instant) {
        let mut engine = self.engine.lock();
        self.flush_or_panic(&mut engine, Scope::Tree);
        // Relaxed: written with `engine` locked, as it is here.
        let as_of = Duration::from_nanos(self.as_of_ns.load(Ordering::Relaxed));
        (copy(), self.epoch + as_of)
    }

    /// A refused barrier leaves everything as it was, for a flush after the refusal ends; but whoever asked
    /// for this one must not go on as if it had been.
    fn flush_or_panic(&self, engine: &mut Engine, scope: Scope) -> FlushReport {
        self.flush_locked(engine, scope, Area::try_barrier).unwrap_or_else(|error| {
            panic!("the kernel refused a barrier that it granted before, so nothing was flushed: {error}")
        })
    }

    fn flush_locked(
        &self,
        engine: &mut Engine,
        mut scope: Scope,
        barrier: impl FnOnce(&Area) -> io::Result<()>,
    ) -> io::Result<FlushReport> {
        // SeqCst: see `ask`; before the marks are taken.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let start = Instant::now();
        // First: what the dead counted is marked, and is taken below.
        let mut deaths = std::mem::take(&mut *self.deaths.lock());
        let announced = || std::mem::take(&mut *self.births.lock());
        // A flush of a part asks for the parents of what is marked. What returned before has been announced.
        engine.learn(announced());
        // SeqCst: before the marks are taken, as the drift.
        let wild = self.wild.load(Ordering::SeqCst);
        // Only a flush of all ends what makes every bound meaningless: readers that ask for a part until its bound
        // is within their tolerance would ask for ever.
        if deaths.len() >= DEATHS_MAX || wild != 0 {
            scope = Scope::Tree;
        }
        if let Scope::Below(root) = scope {
            let elsewhere = deaths.extract_if(.., |id| !engine.is_below(*id as usize, root));
            self.deaths.lock().extend(elsewhere);
        }
        engine.take(scope, announced);
        if let Err(error) = engine.carry_up(barrier) {
            self.deaths.lock().append(&mut deaths);
            return Err(error);
        }
        self.note_flushed(engine, scope, number, start);
        engine.finish();
        // SeqCst: after the totals were stored; pairs with the load in `read`.
        self.wild.fetch_sub(wild, Ordering::SeqCst);
        // Relaxed: a statistic.
        self.len.fetch_sub(deaths.len(), Ordering::Relaxed);
        engine.forget(deaths);
        Ok(engine.report_after(start.elapsed()))
    }

    /// Says when the totals are from, after they were stored.
    fn note_flushed(&self, engine: &mut Engine, scope: Scope, number: u64, start: Instant) {
        let as_of_ns = start.duration_since(self.epoch).as_nanos() as u64;
        match scope {
            Scope::Tree => {
                engine.number = number;
                // Release: after the totals; pairs with the Acquire in `read`.
                self.as_of_ns.store(as_of_ns, Ordering::Release);
            }
            Scope::Below(id) => {
                let words = self.flushed_words(id);
                // Relaxed: written and read with `engine` locked.
                words[1].store(number.cast_signed(), Ordering::Relaxed);
                // Release: after the totals; pairs with the Acquire in `Leaf::as_of_ns`.
                words[0].store(as_of_ns.cast_signed(), Ordering::Release);
            }
        }
    }

    fn flushed_words(&self, id: usize) -> &[AtomicI64; LINE_WORDS] {
        &self.area.shared_lines(rows::FLUSHED)[id * self.lines]
    }

    /// Reads a cached total: one load for each row, another while marks are out, and a few more.
    pub(crate) fn read(&self, leaf: &Leaf, word: usize, batch_mask: u64) -> Reading<i64> {
        // Acquire: before the total, so that the total is of this flush or of a later one: an age that is
        // one flush old is a true age.
        let as_of_ns = self.as_of_ns.load(Ordering::Acquire).max(leaf.as_of_ns());
        // Before the total too: groups that have left it by now are in the total.
        let population = leaf.population();
        // In each row, a word of each group below, and only of lines that are marked. Counted until what
        // they hold is in the totals, so that no mark out means that all that returned is in `value`.
        let words: u64 = self.area.marked_lines().map(|lines| lines.min(population)).sum();
        // Before the drift. An add that its thread has not carried yet keeps what others add after it in the same word
        // from carrying: less than a batch for each.
        let announced = if words == 0 { 0 } else { self.area.announced() };
        // SeqCst, here and in `marked_lines`: a flush stores the total, then subtracts the drift and
        // releases the marks. This loads in the opposite order, so that whatever it misses of the
        // total it still sees in the others.
        let drift = leaf.shared(rows::DRIFT, word).load(Ordering::SeqCst).cast_unsigned();
        let wild = self.wild.load(Ordering::SeqCst) != 0;
        // Relaxed: after the loads above, which acquire what a flush stored before it lowered them.
        let value = leaf.shared(rows::TOTAL, word).load(Ordering::Relaxed);
        let bound = match words {
            0 => 0,
            _ if wild => u64::MAX,
            _ => drift.saturating_add((words + announced).saturating_mul(batch_mask)),
        };
        let as_of = Duration::from_nanos(as_of_ns);
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

    fn announce(&self, birth: Birth) {
        self.births.lock().push(birth);
    }

    fn bury(&self, id: u32) {
        self.deaths.lock().push(id);
    }
}
