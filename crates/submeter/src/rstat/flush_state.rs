//! The flusher's side: what changed, in the whole tree or below one group.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use std::sync::atomic::Ordering;

use submeter_percpu::storage::{Area, BlockRef, DirtyLines, LINE_WORDS, Lines, OwnedRows};

use super::kept_lines::KeptLines;
use super::lineage::Lineage;
use super::propagate::{Propagator, View, add};
use super::rows;
use crate::flush::node_table::{Birth, NodeTable};
use crate::flush::reuse::empty;

/// Groups that are new to the flush.
pub(super) type Births = VecDeque<Birth<BlockRef<Lineage>>>;

/// What a flush did.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// tree.get_or_create("/acme/web")?.inc(requests);
///
/// let report = tree.flush();
/// assert_eq!((report.groups, report.lines), (3, 1)); // the leaf, its parent and the root
/// println!("{report}"); // 3 groups, 1 lines in 41µs
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushReport {
    /// Groups whose totals were visited, each once for each section that was flushed.
    pub groups: usize,
    /// Lines of 64 bytes that were read, for all CPUs.
    pub lines: usize,
    /// From its start to its end.
    pub duration: Duration,
    /// Whether the caller shared a flush that another caller had begun after this one asked; then
    /// the rest is that flush's, or the last one's.
    pub joined: bool,
}

/// `3 groups, 5 lines in 41µs`; `, shared` if the caller joined another's flush.
impl fmt::Display for FlushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlushReport { groups, lines, duration, joined } = self;
        let shared = if *joined { ", shared" } else { "" };
        write!(f, "{groups} groups, {lines} lines in {duration:.0?}{shared}")
    }
}

impl FlushReport {
    /// This one and another, after it.
    pub(crate) fn and(self, more: FlushReport) -> FlushReport {
        FlushReport {
            groups: self.groups + more.groups,
            lines: self.lines + more.lines,
            duration: self.duration + more.duration,
            joined: self.joined && more.joined,
        }
    }
}

/// What a flush is to bring up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushScope {
    Tree,
    /// A group and what is below it, by id.
    Below(usize),
}

impl FlushScope {
    /// Returns a filter for its groups, by id.
    pub(super) fn groups(
        self,
        nodes: &NodeTable<BlockRef<Lineage>>,
    ) -> impl FnMut(usize) -> bool + use<'_> {
        // Neighbours are mostly siblings: one answer for all of them.
        let mut answered = None;
        move |id| match self {
            FlushScope::Tree => true,
            FlushScope::Below(root) => is_below(nodes, id, root, &mut answered),
        }
    }
}

/// What one flush after another works with; locked while one runs.
pub(crate) struct FlushState {
    area: Area,
    lines: usize,
    propagator: Propagator,
    pub(super) kept: KeptLines,
    /// What was found marked; emptied by each flush.
    taken: Vec<DirtyLines>,
    /// Lines whose raised error changed; emptied by each flush.
    erring: Vec<DirtyLines>,
    /// The raised error that the totals have after this flush, by line.
    noted: Vec<(usize, [i64; LINE_WORDS])>,
}

impl FlushState {
    pub(super) fn new(area: Area, last: OwnedRows, lines: usize) -> FlushState {
        FlushState {
            area,
            lines,
            propagator: Propagator::new(last, lines),
            kept: KeptLines::new(lines),
            taken: Vec::new(),
            erring: Vec::new(),
            noted: Vec::new(),
        }
    }

    pub(super) fn report(&self) -> FlushReport {
        self.propagator.report
    }

    /// Learns of groups. Parents come before their children.
    pub(super) fn learn(&mut self, births: Births) {
        self.propagator.nodes.learn(births);
    }

    /// Notes the raised error that this flush will make up for, then finds out what changed. In
    /// this order: an add whose overflow is noted had committed and marked before, so that its line
    /// is among those taken now, or was among those of an earlier flush.
    ///
    /// `announced` returns the groups that were announced since it was last called. A group is
    /// announced before anything is added to it, so that the groups known once the raised error is
    /// noted are all whose overflows it has. Those known before are not: a flush of a part would
    /// cover the error of a group whose marks it leaves.
    ///
    /// `dead` are the groups, in order, that are to be forgotten after this flush.
    pub(super) fn take(&mut self, scope: FlushScope, dead: &[u32], announced: impl Fn() -> Births) {
        self.kept.begin();
        self.note_raised_error(scope);
        self.learn(announced());
        let mut taken = std::mem::take(&mut self.taken);
        self.take_dirty(scope, self.area.rows_in_use(), self.kept.lines(), &mut taken);
        self.taken = taken;
        self.let_go(Some(scope), dead);
        if scope == FlushScope::Tree {
            // Once more: all marks were taken, and a group is announced before it is marked.
            self.learn(announced());
        }
    }

    /// Brings what dead groups have left to the totals above them, and forgets them. `ids` are in
    /// order.
    ///
    /// Takes no barrier, and no mark but theirs: nobody adds to their words any more, and the adds
    /// came before the end of the last handle, which a lock has told of. The pending error above
    /// them stays, for a flush that knows what else is in it.
    pub(super) fn reclaim(&mut self, ids: &mut [u32]) {
        self.kept.begin();
        self.let_go(None, ids);
        let runs = || ids.chunk_by(|&a, &b| a + 1 == b);
        for run in runs() {
            let lines =
                run[0] as usize * self.lines..(run[run.len() - 1] as usize + 1) * self.lines;
            let take = |rows, out: &mut Vec<DirtyLines>| {
                self.area.take_dirty(rows, Lines::Range(lines.clone()), &[], out);
            };
            take(self.area.shared_row(rows::RAISED_ERROR), &mut self.erring);
            take(self.area.rows_in_use(), &mut self.taken);
        }
        // Not a flush that anybody asked for.
        let report = self.report();
        self.propagator.begin();
        self.bring_up();
        self.finish(ids);
        self.forget(ids);
        self.propagator.report = report;
    }

    /// Lets kept lines of `scope` go, and those of the dead: they are taken as others are.
    fn let_go(&mut self, scope: Option<FlushScope>, dead: &[u32]) {
        let FlushState { area, propagator, kept, taken, .. } = self;
        let nodes = &propagator.nodes;
        let mut in_scope = scope.map(|scope| scope.groups(nodes));
        let in_scope = |group: u32| in_scope.as_mut().is_some_and(|has| has(group as usize));
        kept.let_go(!taken.is_empty(), dead, in_scope, |at, line, read| {
            let row = at.row as usize;
            *propagator.last.line(row, line) = read;
            area.take_dirty(row..row + 1, Lines::Range(line..line + 1), &[], taken);
        });
    }

    /// Takes the dirty lines that a flush of `scope` brings up to date, but for those to `keep`.
    fn take_dirty(
        &self,
        scope: FlushScope,
        rows: Range<usize>,
        keep: &[DirtyLines],
        out: &mut Vec<DirtyLines>,
    ) {
        match scope {
            FlushScope::Tree => self.area.take_dirty(rows, Lines::All, keep, out),
            // Without a look at any other: an exact read of one group must not cost more in a busy
            // tree.
            FlushScope::Below(root) if self.has_no_child(root) => {
                let lines = root * self.lines..(root + 1) * self.lines;
                self.area.take_dirty(rows, Lines::Range(lines), keep, out);
            }
            FlushScope::Below(_) => {
                let mut which = marked_in(scope, &self.propagator);
                self.area.take_dirty(rows, Lines::Which(&mut which), keep, out);
            }
        }
    }

    fn has_no_child(&self, id: usize) -> bool {
        self.propagator.nodes.get(id).is_some_and(|node| !node.is_inner())
    }

    fn note_raised_error(&mut self, scope: FlushScope) {
        let mut erring = std::mem::take(&mut self.erring);
        self.take_dirty(scope, self.area.shared_row(rows::RAISED_ERROR), &[], &mut erring);
        self.erring = erring;
        let raised = self.area.shared_lines(rows::RAISED_ERROR);
        for line in self.erring.iter().flat_map(|erring| erring.lines()) {
            // SeqCst: before the marks are taken, as `take` says.
            let load = |n: usize| raised[line][n].load(Ordering::SeqCst);
            self.noted.push((line, std::array::from_fn(load)));
        }
    }

    /// Takes what changed in `scope` to the totals. Where `barrier` fails nothing has happened yet:
    /// what was taken is marked again, and the next flush finds it.
    pub(super) fn propagate(
        &mut self,
        scope: FlushScope,
        barrier: impl FnOnce(&Area) -> io::Result<()>,
    ) -> io::Result<()> {
        // What keeps its mark needs no barrier.
        if !self.taken.is_empty()
            && let Err(error) = barrier(&self.area)
        {
            self.area.restore_dirty(&self.taken);
            self.area.restore_dirty(&self.erring);
            self.kept.end(&self.area);
            self.clear();
            return Err(error);
        }
        self.propagator.begin();
        self.read_kept(scope);
        self.bring_up();
        Ok(())
    }

    /// Reads the lines of `scope` that keep their marks. Their groups are known: a line is kept
    /// once it was taken, and goes before its group is forgotten.
    pub(super) fn read_kept(&mut self, scope: FlushScope) {
        let FlushState { area, propagator, kept, .. } = self;
        let slots = match scope {
            FlushScope::Tree => u64::MAX,
            FlushScope::Below(_) => kept.slots_of(scope.groups(&propagator.nodes)),
        };
        kept.read(area, slots, |line, new| propagator.add(line, new));
    }

    pub(super) fn bring_up(&mut self) {
        if !self.taken.is_empty() {
            self.kept.totals_change();
        }
        // By line, so that a group is visited once, for all of its rows.
        self.taken.sort_unstable_by_key(|marked| (marked.word, marked.row));
        self.propagator.propagate(View::of(&self.area), &self.taken);
    }

    /// Shows readers that the totals have it, once they do. `dead` are forgotten after it.
    pub(super) fn finish(&mut self, dead: &[u32]) {
        let covered = self.area.shared_lines(rows::COVERED_ERROR);
        for (line, noted) in &self.noted {
            for (covered, &noted) in covered[*line].iter().zip(noted) {
                // Release: after the totals were stored; pairs with the Acquire in
                // `GroupStats::pending_error`. A plain store: only the flusher stores here.
                covered.store(noted, Ordering::Release);
            }
        }
        let FlushState { area, propagator, kept, taken, .. } = self;
        let lives = |group: u32| dead.binary_search(&group).is_err();
        kept.learn(taken, lives, |row, line| *propagator.last.line(row, line));
        area.release_dirty(taken);
        area.release_dirty(&self.erring);
        kept.end(area);
        self.clear();
    }

    fn clear(&mut self) {
        empty(&mut self.taken);
        empty(&mut self.erring);
        empty(&mut self.noted);
    }

    pub(super) fn report_after(&mut self, duration: Duration) -> FlushReport {
        self.propagator.report.duration = duration;
        self.propagator.report
    }

    /// Removes groups whose last handle is gone; what they counted is in their ancestors' totals.
    pub(super) fn forget(&mut self, ids: &mut [u32]) {
        self.propagator.forget(ids, self.area.rows_in_use());
    }

    pub(super) fn nodes(&self) -> &NodeTable<BlockRef<Lineage>> {
        &self.propagator.nodes
    }

    /// Appends the lines of a group as they were read last, each the sum over all rows.
    pub(super) fn own(&mut self, id: u32, words: &mut Vec<i64>) {
        let FlushState { area, lines, propagator, kept, .. } = self;
        let (first, begin) = (id as usize * *lines, words.len());
        for line in first..first + *lines {
            let mut sum = [0; LINE_WORDS];
            for row in area.rows_in_use() {
                add(&mut sum, propagator.last.line(row, line));
            }
            words.extend(sum);
        }
        for (row, line, read) in kept.lines_of(id) {
            // The owned row has what was read before the line was kept.
            let before = *propagator.last.line(row, line);
            let sum = &mut words[begin + (line - first) * LINE_WORDS..][..LINE_WORDS];
            for ((sum, read), before) in sum.iter_mut().zip(read).zip(before) {
                *sum = sum.wrapping_add(read.wrapping_sub(before));
            }
        }
    }

    /// Gives back the memory of lines that no group has.
    pub(super) fn discard(&mut self, lines: std::ops::Range<usize>) {
        self.propagator.discard(lines);
    }

    #[cfg(test)]
    pub(super) fn take_visits(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.propagator.visits)
    }

    /// How many elements its lists have room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lists = [self.taken.capacity(), self.erring.capacity(), self.noted.capacity()];
        lists.iter().sum::<usize>() + self.propagator.nodes.capacity()
    }

    /// Whether nothing is left of the last flush.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        let lists = [self.taken.len(), self.erring.len(), self.noted.len()];
        lists == [0; 3] && self.propagator.is_at_rest()
    }
}

/// Returns a filter for marked lines of the groups of `scope`.
fn marked_in(scope: FlushScope, propagator: &Propagator) -> impl FnMut(usize, u64) -> u64 {
    let mut has = scope.groups(&propagator.nodes);
    move |first, bits| {
        let (mut rest, mut wanted) = (bits, 0);
        while rest != 0 {
            let (id, mask) = propagator.group_of(first + rest.trailing_zeros() as usize, first);
            rest &= !mask;
            if has(id) {
                wanted |= bits & mask;
            }
        }
        wanted
    }
}

fn is_below(
    nodes: &NodeTable<BlockRef<Lineage>>,
    id: usize,
    root: usize,
    answered: &mut Option<(usize, bool)>,
) -> bool {
    if id == root {
        return true;
    }
    // A group that the flusher has not heard of yet returned no update before the flush began.
    let Some(parent) = nodes.get(id).and_then(|node| node.parent()) else { return false };
    match *answered {
        Some((of, answer)) if of == parent => answer,
        _ => {
            let answer = nodes.is_below(parent, root);
            *answered = Some((parent, answer));
            answer
        }
    }
}
