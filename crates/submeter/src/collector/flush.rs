//! The flusher's side of a collector: asks what changed, and merges it upwards.

use std::sync::Arc;
use std::time::Duration;

use super::guard::{catch, drop_quietly};
use super::seat::{FirstAndMarks, Seat};
use super::{Collect, Origin};

/// Says what a flush of a collector did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectReport {
    /// Groups whose totals were merged into, each once.
    pub groups: usize,
    /// Calls of [`Collect::flush`]: one for each group and CPU that changed.
    pub locals: usize,
    /// Callbacks that panicked. Each broke a group, unless it was broken before.
    pub panics: usize,
    /// From its start to its end.
    pub duration: Duration,
    /// Whether the caller shared a flush that another had begun after the caller asked.
    pub joined: bool,
}

/// What one flush after another works with; locked while one runs.
pub(super) struct Flusher<C: Collect> {
    /// By slot.
    nodes: Vec<Option<Node<C>>>,
    /// By depth: slots of the nodes that have something pending. Emptied by each flush, never freed.
    levels: Vec<Vec<u32>>,
    /// Rows and slots that were found marked; emptied by each flush.
    marked: Vec<(usize, usize)>,
    /// A copy of the collector's list, which only grows.
    pub(super) sets: Vec<FirstAndMarks>,
    /// The last flush.
    pub(super) number: u64,
    pub(super) report: CollectReport,
}

/// A group, as the flusher knows it.
struct Node<C: Collect> {
    seat: Arc<Seat<C>>,
    /// What is to be merged into its total and its parent's. Not `None` means that it is in its level's list.
    pending: Option<C::Delta>,
}

impl<C: Collect> Flusher<C> {
    pub(super) fn new() -> Flusher<C> {
        Flusher {
            nodes: Vec::new(),
            levels: Vec::new(),
            marked: Vec::new(),
            sets: Vec::new(),
            number: 0,
            report: CollectReport::default(),
        }
    }

    /// Finds out what changed since it was last asked.
    pub(super) fn take_marked(&mut self) {
        for (first, marks) in &self.sets {
            let from = self.marked.len();
            marks.take(&mut self.marked);
            self.marked[from..].iter_mut().for_each(|(_, slot)| *slot += first);
        }
    }

    /// Adds a group.
    pub(super) fn learn(&mut self, seat: Arc<Seat<C>>) {
        let slot = seat.slot.number as usize;
        if self.nodes.len() <= slot {
            self.nodes.resize_with(slot + 1, || None);
        }
        if self.levels.len() <= seat.depth {
            self.levels.resize_with(seat.depth + 1, Vec::new);
        }
        debug_assert!(self.nodes[slot].is_none(), "a slot has one group at a time");
        self.nodes[slot] = Some(Node { seat, pending: None });
    }

    /// Asks what changed, then merges upwards, deepest level first: children before their parents, each group once.
    pub(super) fn carry_up(&mut self, collect: &C) {
        self.report = CollectReport::default();
        let mut marked = std::mem::take(&mut self.marked);
        for &(row, slot) in &marked {
            self.ask(collect, row, slot);
        }
        marked.clear();
        self.marked = marked;
        for depth in (0..self.levels.len()).rev() {
            let mut level = std::mem::take(&mut self.levels[depth]);
            for &slot in &level {
                self.settle(collect, slot as usize);
            }
            self.report.groups += level.len();
            level.clear();
            self.levels[depth] = level;
        }
    }

    /// Takes what is new from a group on one CPU.
    fn ask(&mut self, collect: &C, cpu: usize, slot: usize) {
        let Some(node) = &mut self.nodes[slot] else { return };
        let Node { seat, pending } = node;
        let Some(local) = seat.local(cpu) else { return };
        self.report.locals += 1;
        let was_empty = pending.is_none();
        let outcome = catch(|| {
            // One of its own for each CPU: what a panic leaves half-filled is not to spoil what another CPU had.
            let mut delta = C::Delta::default();
            collect.flush(&Origin { path: &seat.path, cpu }, local, &mut delta);
            merge(collect, delta, pending);
        });
        if was_empty && pending.is_some() {
            self.levels[seat.depth].push(slot as u32);
        }
        if let Err(message) = outcome {
            self.report.panics += 1;
            seat.declare_broken(message);
        }
    }

    /// Merges what a group has pending into its total and into what its parent has pending.
    fn settle(&mut self, collect: &C, slot: usize) {
        let Some(node) = &mut self.nodes[slot] else { return };
        let Some(delta) = node.pending.take() else { return };
        let seat = Arc::clone(&node.seat);
        let merged = {
            let mut total = seat.total.write();
            catch(|| collect.merge(&delta, &mut total.value))
        };
        if let Err(message) = merged {
            self.report.panics += 1;
            seat.declare_broken(message);
        }
        let Some(parent) = &seat.parent else {
            drop_quietly(delta);
            return;
        };
        let above = self.nodes[parent.slot.number as usize].as_mut();
        let above = above.expect("a group is forgotten after its children");
        let was_empty = above.pending.is_none();
        if let Err(message) = catch(|| merge(collect, delta, &mut above.pending)) {
            self.report.panics += 1;
            parent.declare_broken(message);
        }
        if was_empty && above.pending.is_some() {
            self.levels[parent.depth].push(parent.slot.number);
        }
    }

    /// Forgets groups that are gone, and returns what was theirs; what they collected is in their ancestors' totals.
    pub(super) fn forget(&mut self, slots: &[u32]) -> Vec<Arc<Seat<C>>> {
        let nodes = slots.iter().filter_map(|&slot| self.nodes[slot as usize].take());
        nodes.map(|node| node.seat).collect()
    }
}

/// Merges into what may be nothing yet.
fn merge<C: Collect>(collect: &C, delta: C::Delta, into: &mut Option<C::Delta>) {
    match into {
        Some(into) => collect.merge(&delta, into),
        None => *into = Some(delta),
    }
}
