//! What the designs with a lock and a list for each CPU have in common.
//!
//! The words that updates add to are submeter's own, so that designs differ in how they find what
//! changed, and in nothing else. The lock spins and then yields: in Linux it is one whose holder is
//! never preempted, and parking would add a wake-up to each wait.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use submeter_percpu::storage::{Area, Block, LINE_WORDS};

use super::{Design, NONE, Shape};
use crate::bench::rstat::clock::Clock;

/// An updated tree, for one CPU: which nodes have something to flush.
pub(in crate::bench::rstat) trait UpdatedTree:
    Send + Sync + 'static
{
    /// Whether nodes are flushed as they are taken off, before the lock is free again.
    const FLUSHES_UNDER_LOCK: bool;
    /// The order in which nodes are taken off: parents before children, or after.
    const PARENTS_FIRST: bool;
    /// What the links of a node take for each CPU.
    const NODE_BYTES: usize;

    /// Makes one with no node on it.
    fn new(groups: usize) -> Self;

    /// Returns whether a node is on it. Without the lock, that is a guess.
    fn is_on(&self, group: u32) -> bool;

    /// Puts a node and its ancestors on it, with the lock held.
    fn link(&self, parents: &[u32], group: u32);

    /// Takes off `root` and what is below, each once, with the lock held; returns how often it
    /// looked at a node.
    fn detach(&self, parents: &[u32], root: u32, each: &mut impl FnMut(u32)) -> u64;

    /// Says what is wrong with the links, if anything is.
    #[cfg(test)]
    fn is_consistent(&self, parents: &[u32]) -> Result<(), String>;
}

/// What a flush writes in a group, beside what updates read there.
#[derive(Default)]
pub(in crate::bench::rstat) struct Scratch {
    /// What is flushed after it. The flusher's own.
    flush_next: AtomicU32,
    /// How often it was flushed, for a statistic that belongs to all CPUs. The flusher's own.
    flushed: AtomicU32,
}

/// Right beside what is read: as it was before the third patch.
#[derive(Default)]
pub(in crate::bench::rstat) struct Near(Scratch);

impl From<Scratch> for Near {
    fn from(scratch: Scratch) -> Near {
        Near(scratch)
    }
}

impl Deref for Near {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.0
    }
}

/// A group: what updates read, and what a flush writes.
#[repr(C)]
struct Group<P> {
    words: Block,
    scratch: P,
}

/// A list and its lock, for one CPU.
struct List<T> {
    lock: Mutex<()>,
    tree: T,
    /// Whether a thread ever sat here: others are not worth a lock.
    used: AtomicBool,
}

/// The statistics. `T` is the updated tree, `P` where the flusher's scratch lies.
pub(in crate::bench::rstat) struct Lists<T, P> {
    area: Area,
    root: u32,
    parents: Vec<u32>,
    groups: Vec<Group<P>>,
    /// One for each data row of the area: that of a CPU or, without sequences, of a locked row.
    lists: Vec<CachePadded<List<T>>>,
    flusher: Mutex<Flusher>,
    clock: Clock,
}

/// What flushes work with, one at a time.
struct Flusher {
    /// Words of a group, whole lines.
    words: usize,
    /// What was read last, by row and group.
    last: Vec<Vec<i64>>,
    /// What children have handed up, by group.
    pending: Vec<i64>,
    total: Vec<i64>,
}

impl<T, P> Design for Lists<T, P>
where
    T: UpdatedTree,
    P: From<Scratch> + Deref<Target = Scratch> + Send + Sync + 'static,
{
    type Seat = u32;

    fn mark_bytes(_shape: &Shape) -> f64 {
        T::NODE_BYTES as f64
    }

    fn new(shape: &Shape) -> io::Result<Self> {
        let area = Area::new(|_| 0)?;
        let group = |_| {
            let words = area.block(shape.metrics)?;
            Ok(Group { words, scratch: P::from(Scratch::default()) })
        };
        let groups = (0..shape.groups()).map(group).collect::<io::Result<Vec<_>>>()?;
        let rows = area.data_rows();
        let list = |_| {
            let (lock, tree) = (Mutex::new(()), T::new(shape.groups()));
            CachePadded::new(List { lock, tree, used: AtomicBool::new(false) })
        };
        let words = shape.metrics.next_multiple_of(LINE_WORDS);
        let all = words * shape.groups();
        let flusher = Flusher {
            words,
            last: vec![vec![0; all]; rows],
            pending: vec![0; all],
            total: vec![0; all],
        };
        Ok(Lists {
            area,
            root: shape.root(),
            parents: shape.parents.clone(),
            groups,
            lists: (0..rows).map(list).collect(),
            flusher: Mutex::new(flusher),
            clock: Clock::new(),
        })
    }

    /// Finds the row that the thread's adds go to, by adding.
    fn sit(&self) -> io::Result<u32> {
        let probe = self.area.block(1)?;
        let word = probe.first_word();
        probe.add(0, 1);
        let row = (0..self.area.data_rows()).find(|&row| self.area.load(row, word) != 0);
        let row = row.expect("the add is in one of the rows");
        // Relaxed: the threads start together, later.
        self.lists[row].used.store(true, Ordering::Relaxed);
        Ok(row as u32)
    }

    #[inline]
    fn update(&self, seat: u32, group: u32, metric: usize, n: i64) {
        self.groups[group as usize].words.add(metric, n);
        let list = &self.lists[seat as usize];
        if !list.tree.is_on(group) {
            self.link(list, group);
        }
    }

    fn flush(&self, root: u32, holds_ns: &mut Vec<u64>) -> u64 {
        let mut flusher = self.flusher.lock();
        let mut nodes = 0;
        for row in self.rows() {
            let list = &self.lists[row];
            let guard = spin(&list.lock);
            let from = self.clock.ticks();
            if T::FLUSHES_UNDER_LOCK {
                let mut each = |group| {
                    nodes += 1;
                    self.flush_node(&mut flusher, row, group);
                };
                list.tree.detach(&self.parents, root, &mut each);
                drop(guard);
                holds_ns.push(self.clock.since_ns(from));
                continue;
            }
            let mut at = self.take_list(&list.tree, root);
            drop(guard);
            holds_ns.push(self.clock.since_ns(from));
            while at != NONE {
                nodes += 1;
                self.flush_node(&mut flusher, row, at);
                // Relaxed: the flusher's own.
                at = self.groups[at as usize].scratch.flush_next.load(Ordering::Relaxed);
            }
        }
        nodes
    }

    fn settle(&self) {
        for row in self.rows() {
            for group in 0..self.groups.len() as u32 {
                self.link(&self.lists[row], group);
            }
        }
        self.flush(self.root, &mut Vec::new());
    }

    fn total(&self, group: u32, metric: usize) -> i64 {
        let flusher = self.flusher.lock();
        flusher.total[group as usize * flusher.words + metric]
    }
}

impl<T, P> Lists<T, P>
where
    T: UpdatedTree,
    P: Deref<Target = Scratch>,
{
    #[cold]
    fn link(&self, list: &List<T>, group: u32) {
        let _guard = spin(&list.lock);
        list.tree.link(&self.parents, group);
    }

    /// The rows at whose list a thread sits.
    fn rows(&self) -> impl Iterator<Item = usize> {
        // Relaxed: see `sit`.
        (0..self.lists.len()).filter(|&row| self.lists[row].used.load(Ordering::Relaxed))
    }

    /// Takes what is below `root` off the updated tree, as a list with children before their
    /// parents.
    fn take_list(&self, tree: &T, root: u32) -> u32 {
        let (mut head, mut tail) = (NONE, NONE);
        tree.detach(&self.parents, root, &mut |group| {
            let next = |of: u32| &self.groups[of as usize].scratch.flush_next;
            // Relaxed, all of them: the flusher's own.
            if T::PARENTS_FIRST {
                next(group).store(head, Ordering::Relaxed);
                head = group;
                return;
            }
            next(group).store(NONE, Ordering::Relaxed);
            if tail == NONE {
                head = group;
            } else {
                // Relaxed: as above.
                next(tail).store(group, Ordering::Relaxed);
            }
            tail = group;
        });
        head
    }

    /// Takes what is new in a row to the group's totals, and hands it to the parent.
    fn flush_node(&self, flusher: &mut Flusher, row: usize, group: u32) {
        let flushed = &self.groups[group as usize].scratch.flushed;
        // Relaxed, both: the flusher's own.
        flushed.store(flushed.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let parent = self.parents[group as usize];
        if let Some(locked) = self.locked_row(row) {
            self.collect(flusher, locked, group, parent);
        }
        self.collect(flusher, row, group, parent);
    }

    /// Takes what is new in a row, and what children handed up, to the group's totals and to the
    /// parent.
    fn collect(&self, flusher: &mut Flusher, row: usize, group: u32, parent: u32) {
        let (words, first) = (flusher.words, self.groups[group as usize].words.first_line());
        let Flusher { last, pending, total, .. } = flusher;
        let data = self.area.data();
        for line in 0..words / LINE_WORDS {
            let now = data.load_line(row, first + line);
            let lines = |of: u32| {
                let at = of as usize * words + line * LINE_WORDS;
                at..at + LINE_WORDS
            };
            let mut new = [0; LINE_WORDS];
            let here = &mut pending[lines(group)];
            let last = &mut last[row][lines(group)];
            for (((new, now), last), here) in new.iter_mut().zip(now).zip(last).zip(here) {
                *new = now.wrapping_sub(*last).wrapping_add(std::mem::take(here));
                *last = now;
            }
            for (total, new) in total[lines(group)].iter_mut().zip(new) {
                *total = total.wrapping_add(new);
            }
            if parent != NONE {
                for (above, new) in pending[lines(parent)].iter_mut().zip(new) {
                    *above = above.wrapping_add(new);
                }
            }
        }
    }

    /// Where a CPU's adds go whose sequence was aborted too often: to the locked row of that CPU.
    fn locked_row(&self, row: usize) -> Option<usize> {
        let cpus = self.area.rseq()?.cpus() as usize;
        let used = self.area.rows_in_use().len() > cpus;
        used.then(|| cpus + row % (self.area.data_rows() - cpus))
    }

    /// Says what is wrong with the links, if anything is.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> Result<(), String> {
        self.lists.iter().try_for_each(|list| list.tree.is_consistent(&self.parents))
    }
}

/// Takes a lock as a kernel does that may not sleep: spins, and yields only where its holder must
/// have been preempted, which cannot happen there.
fn spin(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    /// Some tens of microseconds: longer than any hold without preemption.
    const SPINS: u32 = 2000;
    loop {
        if let Some(guard) = lock.try_lock() {
            return guard;
        }
        let mut spins = 0;
        while lock.is_locked() {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
