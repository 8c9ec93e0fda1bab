//! The flush of an aggregator: collects what changed, and merges it upwards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use submeter_percpu::contain::{Contained, contain};

use super::slot::{FirstAndMarks, GroupSlot};
use super::{Aggregate, Origin};
use crate::stats::flush::node_table::{Birth, NodeTable, Pending};

/// The results of an aggregator's flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AggregateReport {
    /// Groups whose totals changed, each counted once.
    pub groups: usize,
    /// Calls of [`Aggregate::flush`]: one for each group and CPU that changed.
    pub locals: usize,
    /// Callbacks that panicked. Each broke a group, unless it was broken before.
    pub panics: usize,
    /// The time from the start of the flush to its end.
    pub duration: Duration,
    /// Whether the caller shared a flush that another caller began after this call.
    pub joined: bool,
}

/// The state that flushes share; locked while one runs.
pub(super) struct MergeState<C: Aggregate> {
    nodes: NodeTable<Arc<GroupSlot<C>>>,
    /// By slot: the delta to be merged into a group's total and its parent's.
    pending: Vec<Option<C::Delta>>,
    /// Rows and slot numbers that were marked; emptied by each flush.
    marked: Vec<(usize, usize)>,
    /// A copy of the aggregator's list, which only grows.
    pub(super) sets: Vec<FirstAndMarks>,
    pub(super) report: AggregateReport,
}

impl<C: Aggregate> MergeState<C> {
    pub(super) fn new() -> MergeState<C> {
        MergeState {
            nodes: NodeTable::new(),
            pending: Vec::new(),
            marked: Vec::new(),
            sets: Vec::new(),
            report: AggregateReport::default(),
        }
    }

    /// Finds out what changed since the last flush.
    pub(super) fn take_marked(&mut self) {
        for (first, marks) in &self.sets {
            let from = self.marked.len();
            marks.take(&mut self.marked);
            self.marked[from..].iter_mut().for_each(|(_, number)| *number += first);
        }
    }

    pub(super) fn learn(&mut self, births: VecDeque<Birth<Arc<GroupSlot<C>>>>) {
        self.nodes.learn(births);
    }

    /// Collects what changed, then merges it upwards: children before their parents, each group
    /// once.
    pub(super) fn propagate(&mut self, aggregate: &C) {
        self.report = AggregateReport::default();
        let MergeState { nodes, pending, marked, report, .. } = self;
        let mut merge = Merge { aggregate, pending, report };
        for (row, id) in marked.drain(..) {
            merge.collect(nodes, row, id);
        }
        nodes.walk(|nodes, node| merge.pass_on(nodes, &node));
        self.pending.clear();
    }

    /// Removes released groups and returns their slots; their ancestors' totals have everything
    /// that they collected.
    pub(super) fn forget(&mut self, ids: &mut [u32]) -> Vec<Arc<GroupSlot<C>>> {
        let mut gone = Vec::with_capacity(ids.len());
        self.nodes.forget(ids, |_, slot| gone.push(slot));
        gone
    }
}

/// A running flush, without the table that it walks.
struct Merge<'a, C: Aggregate> {
    aggregate: &'a C,
    pending: &'a mut Vec<Option<C::Delta>>,
    report: &'a mut AggregateReport,
}

impl<C: Aggregate> Merge<'_, C> {
    /// Collects what is new in a group on one CPU.
    fn collect(&mut self, nodes: &mut NodeTable<Arc<GroupSlot<C>>>, cpu: usize, id: usize) {
        let Some(slot) = nodes.kept(id) else { return };
        let Some(local) = slot.local(cpu) else { return };
        self.report.locals += 1;
        let mut new = None;
        let outcome = contain(|| {
            // A separate delta per CPU, so that a panic cannot spoil the delta of another CPU.
            let mut delta = C::Delta::default();
            self.aggregate.flush(&Origin { path: &slot.path, cpu }, local, &mut delta);
            new = Some(delta);
        });
        self.note(outcome, slot);
        if let Some(delta) = new {
            self.add(nodes, id, delta);
        }
    }

    /// Merges a group's pending delta into its total and into its parent's pending delta.
    fn pass_on(&mut self, nodes: &mut NodeTable<Arc<GroupSlot<C>>>, node: &Pending) {
        self.report.groups += 1;
        let Some(delta) = self.pending[node.slot].take() else { return };
        let Some(slot) = nodes.kept(node.id) else { return };
        let merged = {
            let mut total = slot.total.write();
            contain(|| self.aggregate.merge(&delta, &mut total.value))
        };
        self.note(merged, slot);
        match node.parent {
            Some(parent) => self.add(nodes, parent, delta),
            // No caller remains to tell of a panic.
            None => drop(contain(|| drop(delta))),
        }
    }

    /// Merges into a group's pending delta.
    fn add(&mut self, nodes: &mut NodeTable<Arc<GroupSlot<C>>>, id: usize, delta: C::Delta) {
        let (at, new) = nodes.schedule(id, 1);
        if new {
            self.pending.push(None);
        }
        let into = &mut self.pending[at];
        let outcome = contain(|| match into {
            Some(into) => self.aggregate.merge(&delta, into),
            None => *into = Some(delta),
        });
        if let Some(slot) = nodes.kept(id) {
            self.note(outcome, slot);
        }
    }

    /// Marks a group as broken if a callback for it panicked.
    fn note(&mut self, outcome: Result<(), Contained>, slot: &GroupSlot<C>) {
        if let Err(panic) = outcome {
            self.report.panics += 1;
            slot.declare_broken(panic.message().unwrap_or("no message").into());
        }
    }
}
