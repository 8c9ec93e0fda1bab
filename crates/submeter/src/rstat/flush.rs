//! The flusher's side: from marked lines to totals.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use submeter_percpu::storage::{Area, Block, LINE_WORDS, Marked};

use super::leaf::Lineage;
use super::rows;

/// Says what a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushReport {
    /// Groups whose totals were visited, each once.
    pub groups: usize,
    /// Lines of 64 bytes that were read, for all CPUs.
    pub lines: usize,
    /// From its start to its end.
    pub duration: Duration,
    /// Whether the caller shared a flush that another had begun after the caller asked.
    pub joined: bool,
}

/// A group, as the flusher knows it.
pub(crate) struct Node {
    id: u32,
    parent: Option<u32>,
    depth: u32,
    /// Lines of the block that have something pending: bit `n` for line `n`. Not 0 means that the node
    /// is in its level's list.
    dirty: u64,
    /// Keeps the words until the flusher has read them a last time.
    _block: Block,
    lineage: Arc<Lineage>,
}

impl Node {
    pub(super) fn new(id: u32, parent: Option<u32>, block: Block, lineage: Arc<Lineage>) -> Node {
        // The depth is set when the flusher learns of it: only it knows the parent's node.
        Node { id, parent, depth: 0, dirty: 0, _block: block, lineage }
    }
}

/// What one flush after another works with; locked while one runs.
pub(crate) struct Flusher {
    area: Area,
    lines: usize,
    /// By id.
    nodes: Vec<Option<Node>>,
    /// By depth: the nodes that have something pending. Emptied by each flush, never freed.
    levels: Vec<Vec<u32>>,
    /// What was found marked; emptied by each flush.
    marked: Vec<Marked>,
    /// How many of them were found before the drift was noted.
    noted: usize,
    /// The last flush.
    pub(super) number: u64,
    pub(super) report: FlushReport,
}

impl Flusher {
    pub(super) fn new(area: Area, lines: usize) -> Flusher {
        Flusher {
            area,
            lines,
            nodes: Vec::new(),
            levels: Vec::new(),
            marked: Vec::new(),
            noted: 0,
            number: 0,
            report: FlushReport::default(),
        }
    }

    /// Finds out what changed since it was last asked.
    pub(super) fn take_marked(&mut self) {
        self.area.take_marked(&mut self.marked);
    }

    /// Adds a group. Parents come before their children.
    pub(super) fn learn(&mut self, mut node: Node) {
        let index = node.id as usize;
        let parent = node.parent.and_then(|parent| self.nodes[parent as usize].as_ref());
        node.depth = parent.map_or(0, |parent| parent.depth + 1);
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, || None);
        }
        if self.levels.len() <= node.depth as usize {
            self.levels.resize_with(node.depth as usize + 1, Vec::new);
        }
        debug_assert!(self.nodes[index].is_none(), "a block has one group at a time");
        self.nodes[index] = Some(node);
    }

    /// Lists the groups that changed, and notes the drift that this flush will make up for. Returns
    /// whether there are any.
    pub(super) fn note_drift(&mut self) -> bool {
        self.noted = self.marked.len();
        for at in 0..self.noted {
            self.enlist(self.marked[at].line as usize, true);
        }
        self.noted > 0
    }

    /// Takes the differences of the marked lines to the totals, deepest level first.
    pub(super) fn carry_up(&mut self) {
        self.report = FlushReport { lines: self.marked.len(), ..FlushReport::default() };
        if self.marked.is_empty() {
            return;
        }
        let mut marked = std::mem::take(&mut self.marked);
        for marked in &marked[self.noted..] {
            // Their drift stays, for a flush that finds it first: a bound that is too wide is a bound.
            self.enlist(marked.line as usize, false);
        }
        self.area.barrier();
        for marked in &marked {
            self.collect(*marked);
        }
        marked.clear();
        self.marked = marked;
        for depth in (0..self.levels.len()).rev() {
            let mut level = std::mem::take(&mut self.levels[depth]);
            for &id in &level {
                self.settle(id as usize);
            }
            self.report.groups += level.len();
            level.clear();
            self.levels[depth] = level;
        }
    }

    /// Lists the group of `line` and its ancestors as having something pending there, and notes their
    /// drift if it is to be made up for.
    fn enlist(&mut self, line: usize, note: bool) {
        let (mut id, line) = (line / self.lines, line % self.lines);
        let bit = 1 << line;
        while let Some(node) = &mut self.nodes[id] {
            if node.dirty & bit != 0 {
                // So have its ancestors.
                return;
            }
            if node.dirty == 0 {
                self.levels[node.depth as usize].push(node.id);
            }
            node.dirty |= bit;
            let parent = node.parent;
            if note {
                self.note_drift_of(id * self.lines + line);
            }
            let Some(parent) = parent else { return };
            id = parent as usize;
        }
    }

    fn note_drift_of(&self, line: usize) {
        let drift = self.area.shared_line(rows::DRIFT, line);
        let taken = self.area.shared_line(rows::TAKEN, line);
        for (drift, taken) in drift.iter().zip(taken) {
            // SeqCst: before the marks are taken a second time. An add whose carry is seen here had
            // committed and marked before, so that its line was, or will be, among the marked.
            let drift = drift.load(Ordering::SeqCst);
            // Relaxed: the flusher's own row. Loaded first, not to touch pages in vain.
            if drift != taken.load(Ordering::Relaxed) {
                taken.store(drift, Ordering::Relaxed);
            }
        }
    }

    /// Adds what is new in a line of one row to what its group has pending.
    fn collect(&mut self, Marked { row, line }: Marked) {
        let (row, line) = (row as usize, line as usize);
        let now = self.area.load_line(row, line);
        let last = self.area.shared_line(rows::LAST + row, line);
        let pending = self.area.shared_line(rows::PENDING, line);
        for n in 0..LINE_WORDS {
            // Relaxed, all four: the flusher's own rows.
            let new = now[n].wrapping_sub(last[n].load(Ordering::Relaxed));
            if new != 0 {
                last[n].store(now[n], Ordering::Relaxed);
                let before = pending[n].load(Ordering::Relaxed);
                pending[n].store(before.wrapping_add(new), Ordering::Relaxed);
            }
        }
    }

    /// Adds what a group has pending to its total and to what its parent has pending.
    fn settle(&mut self, id: usize) {
        let Some(node) = &mut self.nodes[id] else { return };
        let parent = node.parent.map(|parent| parent as usize);
        let mut dirty = std::mem::take(&mut node.dirty);
        while dirty != 0 {
            let line = dirty.trailing_zeros() as usize;
            dirty &= dirty - 1;
            let at = id * self.lines + line;
            let pending = self.area.shared_line(rows::PENDING, at);
            let total = self.area.shared_line(rows::TOTAL, at);
            let above = parent
                .map(|parent| self.area.shared_line(rows::PENDING, parent * self.lines + line));
            for n in 0..LINE_WORDS {
                // Relaxed: the flusher's own row.
                let new = pending[n].load(Ordering::Relaxed);
                if new == 0 {
                    continue;
                }
                // Relaxed: the flusher's own row.
                pending[n].store(0, Ordering::Relaxed);
                // Relaxed for the load: only the flusher writes totals. SeqCst for the store:
                // before the drift is subtracted; pairs with the loads in `Rstat::read`.
                let before = total[n].load(Ordering::Relaxed);
                total[n].store(before.wrapping_add(new), Ordering::SeqCst);
                if let Some(above) = above {
                    // Relaxed: the flusher's own row.
                    let before = above[n].load(Ordering::Relaxed);
                    above[n].store(before.wrapping_add(new), Ordering::Relaxed);
                }
            }
            self.make_up_drift(at);
        }
    }

    /// Subtracts the drift that is in the total now.
    fn make_up_drift(&self, line: usize) {
        let drift = self.area.shared_line(rows::DRIFT, line);
        let taken = self.area.shared_line(rows::TAKEN, line);
        for (drift, taken) in drift.iter().zip(taken) {
            // Relaxed: the flusher's own row.
            let made_up = taken.load(Ordering::Relaxed);
            if made_up != 0 {
                taken.store(0, Ordering::Relaxed);
                // SeqCst: after the total was stored; pairs with the load in `Rstat::read`.
                drift.fetch_sub(made_up, Ordering::SeqCst);
            }
        }
    }

    /// Removes groups whose last handle is gone; what they counted is in their ancestors' totals.
    pub(super) fn forget(&mut self, mut ids: Vec<u32>) {
        // A node goes before its parent: children are always the first to be dropped, but two
        // threads may have listed theirs in any order.
        ids.sort_by_key(|id| {
            std::cmp::Reverse(self.nodes[*id as usize].as_ref().map_or(0, |node| node.depth))
        });
        for id in ids {
            if let Some(node) = self.nodes[id as usize].take() {
                node.lineage.leave();
            }
        }
    }
}
