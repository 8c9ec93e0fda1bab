//! The common part of the designs with a lock and a list per CPU.
//!
//! The words that updates add to are submeter's own, so that designs differ only in how they find
//! what changed. The lock spins and then yields: in Linux its holder is never preempted, and
//! parking would add a wake-up to each wait.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use submeter_percpu::storage::{Area, Block, LINE_WORDS};

use super::{Design, NONE, Shape};
use crate::bench::rstat::clock::Clock;

/// An updated tree of one CPU: the nodes that have something to flush.
pub(in crate::bench::rstat) trait UpdatedTree:
    Send + Sync + 'static
{
    /// Whether nodes are flushed as they are taken off, before the lock is free again.
    const FLUSHES_UNDER_LOCK: bool;
    /// The order in which nodes are taken off: parents before children, or after.
    const PARENTS_FIRST: bool;
    /// The size of a node's links on one CPU.
    const NODE_BYTES: usize;

    /// Makes an empty one.
    fn new(groups: usize) -> Self;

    /// Returns whether a node is on it. Without the lock, that is a guess.
    fn is_on(&self, group: u32) -> bool;

    /// Puts a node and its ancestors on it, with the lock held.
    fn link(&self, parents: &[u32], group: u32);

    /// Takes off `root` and its descendants, each once, with the lock held; returns how many nodes
    /// it visited, repeats included.
    fn detach(&self, parents: &[u32], root: u32, each: &mut impl FnMut(u32)) -> u64;

    /// Checks the links; an error says what is wrong with them.
    #[cfg(test)]
    fn is_consistent(&self, parents: &[u32]) -> Result<(), String>;
}

/// The fields that a flush writes in a group, beside those that updates read there.
#[derive(Default)]
pub(in crate::bench::rstat) struct Scratch {
    /// The group that is flushed next. Only the flusher uses it.
    flush_next: AtomicU32,
    /// How often it was flushed on any CPU. Only the flusher uses it.
    flushed: AtomicU32,
}

/// Directly beside the fields that updates read, as before the third patch.
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

/// A group: the fields that updates read, and those that a flush writes.
#[repr(C)]
struct Group<P> {
    words: Block,
    scratch: P,
}

/// A list and its lock, for one CPU.
struct List<T> {
    lock: Mutex<()>,
    tree: T,
    /// Whether a thread ever registered here: an unused list need not be locked.
    used: AtomicBool,
}

/// The statistics. `T` is the updated tree, `P` determines where the flusher's scratch fields lie.
pub(in crate::bench::rstat) struct Lists<T, P> {
    area: Area,
    root: u32,
    parents: Vec<u32>,
    groups: Vec<Group<P>>,
    /// One per data row of the area: a CPU's row or, without sequences, a locked row.
    lists: Vec<CachePadded<List<T>>>,
    flusher: Mutex<Flusher>,
    clock: Clock,
}

/// The state of flushes, of which one runs at a time.
struct Flusher {
    /// Words of a group, whole lines.
    words: usize,
    /// The values read last, by row and group.
    last: Vec<Vec<i64>>,
    /// The deltas that children have propagated, by group.
    pending: Vec<i64>,
    total: Vec<i64>,
}

impl<T, P> Design for Lists<T, P>
where
    T: UpdatedTree,
    P: From<Scratch> + Deref<Target = Scratch> + Send + Sync + 'static,
{
    type Slot = u32;

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

    /// Finds the row that receives the thread's adds, by adding once.
    fn register(&self) -> io::Result<u32> {
        let probe = self.area.block(1)?;
        let word = probe.first_word();
        probe.add(0, 1);
        let row = (0..self.area.data_rows()).find(|&row| self.area.load(row, word) != 0);
        let row = row.expect("the add is in one of the rows");
        // Relaxed: the threads start later, after a barrier.
        self.lists[row].used.store(true, Ordering::Relaxed);
        Ok(row as u32)
    }

    #[inline]
    fn update(&self, slot: u32, group: u32, metric: usize, n: i64) {
        self.groups[group as usize].words.add(metric, n);
        let list = &self.lists[slot as usize];
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
                // Relaxed: only the flusher uses it.
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

    /// Returns the rows with a registered thread.
    fn rows(&self) -> impl Iterator<Item = usize> {
        // Relaxed: see `register`.
        (0..self.lists.len()).filter(|&row| self.lists[row].used.load(Ordering::Relaxed))
    }

    /// Takes `root` and its descendants off the updated tree, as a list with children before their
    /// parents.
    fn take_list(&self, tree: &T, root: u32) -> u32 {
        let (mut head, mut tail) = (NONE, NONE);
        tree.detach(&self.parents, root, &mut |group| {
            let next = |of: u32| &self.groups[of as usize].scratch.flush_next;
            // Relaxed, all of them: only the flusher uses them.
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

    /// Adds a row's new counts to the group's totals, and propagates them to the parent.
    fn flush_node(&self, flusher: &mut Flusher, row: usize, group: u32) {
        let flushed = &self.groups[group as usize].scratch.flushed;
        // Relaxed, both: only the flusher uses it.
        flushed.store(flushed.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let parent = self.parents[group as usize];
        if let Some(locked) = self.locked_row(row) {
            self.collect(flusher, locked, group, parent);
        }
        self.collect(flusher, row, group, parent);
    }

    /// Adds a row's new counts, and the deltas that children propagated, to the group's totals and
    /// to the parent's deltas.
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

    /// Returns the locked row of a CPU, which receives adds whose sequence was aborted too often.
    fn locked_row(&self, row: usize) -> Option<usize> {
        let cpus = self.area.rseq()?.cpus() as usize;
        let used = self.area.rows_in_use().len() > cpus;
        used.then(|| cpus + row % (self.area.data_rows() - cpus))
    }

    /// Checks the links; an error says what is wrong with them.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> Result<(), String> {
        self.lists.iter().try_for_each(|list| list.tree.is_consistent(&self.parents))
    }
}

/// Takes a lock as a kernel that must not sleep does: spins, and yields only if the holder must
/// have been preempted, which cannot happen in the kernel.
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
