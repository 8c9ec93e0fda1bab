//! From marked lines to totals: the part of a flush after it has found the changes.

use std::sync::atomic::{AtomicI64, Ordering};

use submeter_percpu::storage::{
    Area, BlockRef, DataRows, DirtyLines, LINE_WORDS, OwnedLines, OwnedRows,
};

use super::remains::Remains;
use super::{FlushReport, Lineage, rows};
use crate::stats::flush::node_table::NodeTable;
use crate::stats::flush::reuse::empty;

type Line = [i64; LINE_WORDS];

/// As many lines as a group may have: a node has a bit for each.
static ZERO: [Line; 64] = [[0; LINE_WORDS]; 64];

/// The rows that a flush reads and the totals that it writes.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    data: DataRows<'a>,
    /// The values read last: a row for each data row.
    last: OwnedLines<'a>,
    totals: &'a [[AtomicI64; LINE_WORDS]],
}

impl<'a> View<'a> {
    pub(super) fn of(area: &'a Area, last: &'a OwnedRows) -> View<'a> {
        View { data: area.data(), last: last.lines(), totals: area.shared_lines(rows::TOTAL) }
    }

    /// Reads a line in each of `rows`, and returns by how much they differ from the last read, if
    /// any does. Calls `begin` before it stores what it read.
    #[inline(always)]
    fn new_in(
        self,
        rows: &mut [Candidate],
        first: usize,
        bit: usize,
        begin: &impl Fn(),
    ) -> Option<Line> {
        let mut new = None;
        for row in rows {
            if row.lines.bits >> bit & 1 == 0 {
                continue;
            }
            if let Some(more) = self.new_in_row(row.lines.row as usize, first + bit, begin) {
                row.changed |= 1 << bit;
                match &mut new {
                    Some(new) => add(new, &more),
                    None => new = Some(more),
                }
            }
        }
        new
    }

    #[inline(always)]
    fn new_in_row(self, row: usize, line: usize, begin: &impl Fn()) -> Option<Line> {
        let (now, last) = (self.data.load_line(row, line), self.last.line(row, line));
        let (mut new, mut any) = ([0; LINE_WORDS], 0);
        for n in 0..LINE_WORDS {
            // Relaxed: used only by the flusher.
            new[n] = now[n].wrapping_sub(last[n].load(Ordering::Relaxed));
            any |= new[n];
        }
        if any == 0 {
            return None;
        }
        begin();
        for n in 0..LINE_WORDS {
            // Relaxed: as above.
            last[n].store(now[n], Ordering::Relaxed);
        }
        Some(new)
    }

    /// Adds to the cached totals of a line.
    #[inline(always)]
    fn add_to_total(self, line: usize, new: &Line) {
        let totals = &self.totals[line];
        for n in 0..LINE_WORDS {
            // Relaxed for the load: only the flusher writes totals. Relaxed for the store: the
            // marks and the flush's number are released after all totals, and order them for
            // readers.
            let before = totals[n].load(Ordering::Relaxed);
            totals[n].store(before.wrapping_add(new[n]), Ordering::Relaxed);
        }
    }
}

/// Lines that a flush compares with their last-read values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) lines: DirtyLines,
    /// The index among the words of the kept lines; `None` if the marks were taken.
    pub(super) kept: Option<u32>,
    /// The lines that differ.
    pub(super) changed: u64,
}

impl Candidate {
    /// Returns lines whose marks were taken.
    pub(super) fn taken(lines: DirtyLines) -> Candidate {
        Candidate { lines, kept: None, changed: 0 }
    }
}

/// Carries differences from the groups that changed to the root: each group once.
pub(super) struct Propagator {
    /// Number of lines of a group.
    lines: usize,
    /// 2^32 / `lines`, rounded up.
    reciprocal: u64,
    pub(super) nodes: NodeTable<BlockRef<Lineage>>,
    pub(super) remains: Remains,
    /// Pending lines, by slot, of the groups that have something pending from below: `lines` for
    /// each. Reused, so that it stays in the cache.
    pending: Vec<Line>,
    /// The group whose lines were read last.
    collected: usize,
    pub(super) report: FlushReport,
    #[cfg(test)]
    pub(super) visits: Vec<u32>,
}

impl Propagator {
    pub(super) fn new(lines: usize, levels: &[usize]) -> Propagator {
        Propagator {
            lines,
            reciprocal: (1 << 32) / lines as u64 + 1,
            nodes: NodeTable::new(),
            remains: Remains::new(levels),
            pending: Vec::new(),
            collected: usize::MAX,
            report: FlushReport::default(),
            #[cfg(test)]
            visits: Vec::new(),
        }
    }

    /// Returns the group of `line` and a mask of its lines among the 64 from `first` on.
    #[inline]
    pub(super) fn group_of(&self, line: usize, first: usize) -> (usize, u64) {
        // Equals `line / self.lines`; a division would take a tenth of a flush. Exact, because the
        // reciprocal's error times the line is below 2^32: a row has fewer than 2^24 lines, a group
        // at most 64.
        let id = ((line as u64 * self.reciprocal) >> 32) as usize;
        debug_assert_eq!(id, line / self.lines);
        let from = (id * self.lines).saturating_sub(first);
        let to = ((id + 1) * self.lines - first).min(64);
        (id, u64::MAX << from & u64::MAX >> (64 - to))
    }

    /// Begins a flush.
    pub(super) fn begin(&mut self) {
        self.report = FlushReport::default();
        self.collected = usize::MAX;
    }

    /// Adds what is new in these lines, which are in order, to the totals of all groups up to the
    /// root, and notes which lines have changed. Calls `begin` before it changes anything.
    pub(super) fn propagate(
        &mut self,
        view: View<'_>,
        candidates: &mut [Candidate],
        begin: impl Fn(),
    ) {
        for rows in candidates.chunk_by_mut(|a, b| a.lines.word == b.lines.word) {
            self.collect(view, rows, &begin);
        }
        self.pass_on(view);
        empty(&mut self.pending);
    }

    /// Reads 64 lines, in one or more rows.
    fn collect(&mut self, view: View<'_>, rows: &mut [Candidate], begin: &impl Fn()) {
        let first = rows[0].lines.word as usize * 64;
        let mut bits = rows.iter().fold(0, |bits, row| bits | row.lines.bits);
        while bits != 0 {
            let (id, mask) = self.group_of(first + bits.trailing_zeros() as usize, first);
            self.collect_group(view, rows, first, (id, bits & mask), begin);
            bits &= !mask;
        }
        for row in rows {
            self.report.lines += row.changed.count_ones() as usize;
        }
    }

    /// Reads lines of one group, `bits` of the 64 from `first` on.
    #[inline(always)]
    fn collect_group(
        &mut self,
        view: View<'_>,
        rows: &mut [Candidate],
        first: usize,
        (id, mut bits): (usize, u64),
        begin: &impl Fn(),
    ) {
        let Some(node) = self.nodes.get(id) else { return };
        let block = id * self.lines;
        // A group with children waits for what they bring, so that it is visited once; so does a
        // group that waits already.
        let waits = node.is_inner() || node.is_scheduled();
        let above = if waits { Some(id) } else { node.parent() };
        let (mut slot, mut dirty) = (None, 0);
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(new) = view.new_in(rows, first, bit, begin) else { continue };
            if !waits {
                view.add_to_total(first + bit, &new);
            }
            let line = first + bit - block;
            dirty |= 1 << line;
            if let Some(above) = above {
                let (nodes, pending) = (&mut self.nodes, &mut self.pending);
                let slot =
                    *slot.get_or_insert_with(|| schedule(nodes, pending, self.lines, above, dirty));
                add(&mut pending[slot + line], &new);
            }
        }
        if dirty == 0 {
            return;
        }
        if let Some(above) = above {
            // The first line scheduled the parent for itself alone. Once for the rest, not once for
            // each.
            self.nodes.schedule(above, dirty);
        }
        if !waits && self.collected != id {
            // Lines of a group follow each other, but not always in one word.
            self.collected = id;
            self.visited(id);
        }
    }

    /// Adds each group's pending counts to its totals and to its parent's pending counts.
    fn pass_on(&mut self, view: View<'_>) {
        let Propagator { nodes, pending, report, lines, .. } = self;
        let lines = *lines;
        nodes.walk(|nodes, node| {
            let (from, mut dirty) = (node.slot * lines, node.dirty);
            let above = node.parent.map(|parent| schedule(nodes, pending, lines, parent, dirty));
            report.groups += 1;
            #[cfg(test)]
            self.visits.push(node.id as u32);
            while dirty != 0 {
                let line = dirty.trailing_zeros() as usize;
                dirty &= dirty - 1;
                let new = pending[from + line];
                view.add_to_total(node.id * lines + line, &new);
                if let Some(above) = above {
                    add(&mut pending[above + line], &new);
                }
            }
        });
    }

    #[inline(always)]
    fn visited(&mut self, _id: usize) {
        self.report.groups += 1;
        #[cfg(test)]
        self.visits.push(_id as u32);
    }

    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.pending.is_empty() && self.nodes.is_at_rest()
    }

    /// Removes groups whose last handle is gone; their counts are in their ancestors' totals, and
    /// what is left of their gauges passes to their parents.
    pub(super) fn forget(
        &mut self,
        ids: &mut [u32],
        last: &OwnedRows,
        rows: impl Iterator<Item = usize> + Clone,
    ) {
        let Propagator { nodes, remains, lines, .. } = self;
        let (lines, last) = (*lines, last.lines());
        nodes.forget(ids, |id, kept| {
            let parent = kept.parent.as_ref().map(|parent| parent.first_line() / lines);
            remains.pass_on(id, parent, |line, word| {
                // Relaxed: used only by the flusher.
                let read = |row| last.line(row, id * lines + line)[word].load(Ordering::Relaxed);
                rows.clone().map(read).fold(0, i64::wrapping_add)
            });
            // Before the block is released: its lines must start from zero with their next group.
            for (row, line) in rows.clone().flat_map(|row| (0..lines).map(move |l| (row, l))) {
                for word in last.line(row, id * lines + line) {
                    // Relaxed, both: used only by the flusher. An unconditional store would commit
                    // a page that was never written.
                    if word.load(Ordering::Relaxed) != 0 {
                        // Relaxed: as above.
                        word.store(0, Ordering::Relaxed);
                    }
                }
            }
            Lineage::leave(&kept);
        });
    }
}

/// Lists a group as having something pending in the lines `dirty`; returns its index in `pending`.
#[inline(always)]
fn schedule(
    nodes: &mut NodeTable<BlockRef<Lineage>>,
    pending: &mut Vec<Line>,
    lines: usize,
    id: usize,
    dirty: u64,
) -> usize {
    let (slot, new) = nodes.schedule(id, dirty);
    if new {
        pending.extend_from_slice(&ZERO[..lines]);
    }
    slot * lines
}

#[inline(always)]
pub(super) fn add(to: &mut Line, new: &Line) {
    for n in 0..LINE_WORDS {
        to[n] = to[n].wrapping_add(new[n]);
    }
}
