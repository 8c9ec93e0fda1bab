//! The flusher's side: what changed, in the whole tree or below one group.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter_percpu::dirty::Kept;
use submeter_percpu::storage::{Area, BlockRef, DirtyLines, LINE_WORDS, Lines, OwnedRows};

use super::kept_lines::{BUSY_MAX, COLD_MAX, KeptLines, QUIET_MAX, SPACING_NS};
use super::lineage::Lineage;
use super::propagate::{Propagator, View};
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
    /// Lines of 64 bytes that had changed, on all CPUs.
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
    last: Arc<OwnedRows>,
    propagator: Propagator,
    /// Lines of data that keep their marks.
    pub(super) kept: KeptLines,
    /// Where readers are told of them.
    shown: Arc<Kept>,
    /// Lines of the raised error that keep theirs.
    erring: KeptLines,
    /// When this flush began, in ns after the tree's begin.
    now_ns: u64,
    /// When the last flush began that issued a barrier.
    pub(super) barrier_ns: Option<u64>,
    /// Lines whose marks were taken, first those that were found, then those that were let go;
    /// emptied by each flush, as the lists below.
    taken: Vec<DirtyLines>,
    /// How many were found.
    found: usize,
    /// Lines of the raised error whose marks were taken.
    erring_taken: Vec<DirtyLines>,
    /// Lines that may have changed: those that were taken, and kept ones.
    changed: Vec<DirtyLines>,
    /// The raised error that the totals have after this flush, by line.
    noted: Vec<(usize, [i64; LINE_WORDS])>,
}

impl FlushState {
    pub(super) fn new(
        area: Area,
        last: Arc<OwnedRows>,
        shown: Arc<Kept>,
        lines: usize,
    ) -> FlushState {
        FlushState {
            area,
            lines,
            last,
            propagator: Propagator::new(lines),
            kept: KeptLines::default(),
            shown,
            erring: KeptLines::default(),
            now_ns: 0,
            barrier_ns: None,
            taken: Vec::new(),
            found: 0,
            erring_taken: Vec::new(),
            changed: Vec::new(),
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

    /// Notes the raised error that this flush will make up for, then finds out what is marked. In
    /// this order: an add whose overflow is noted had committed and marked before, so that its line
    /// is among those found now, or keeps its mark.
    ///
    /// `announced` returns the groups that were announced since it was last called. A group is
    /// announced before anything is added to it, so that the groups known once the raised error is
    /// noted are all whose overflows it has. Those known before are not: a flush of a part would
    /// cover the error of a group whose marks it leaves.
    ///
    /// `dead` are the groups, in order, that are to be forgotten after this flush, which began at
    /// `now_ns`.
    pub(super) fn take(
        &mut self,
        scope: FlushScope,
        dead: &[u32],
        now_ns: u64,
        announced: impl Fn() -> Births,
    ) {
        self.now_ns = now_ns;
        self.note_raised_error(scope);
        self.learn(announced());
        let mut found = std::mem::take(&mut self.taken);
        // Marks are counted, those of kept lines included: where no more count, there are no
        // others.
        if self.area.dirty_lines(u64::MAX) != self.kept.len() as u64 {
            self.find(scope, self.area.rows_in_use(), &self.kept, &mut found);
        }
        let FlushState { area, propagator, kept, .. } = self;
        let barrier = is_barrier_due(kept, count(&found), self.barrier_ns, now_ns);
        if !barrier {
            kept.adopt(&found);
            found.clear();
        }
        self.found = found.len();
        if barrier {
            let mut which = in_scope(scope, propagator);
            kept.let_go(|lines, ages| which(lines) & ages.unchanged(), &mut found);
        }
        if !dead.is_empty() {
            kept.let_go(|lines, _| of_groups(dead, propagator, lines), &mut found);
        }
        area.take_dirty(&mut found);
        self.taken = found;
        if scope == FlushScope::Tree {
            // Once more: all marks were found, and a group is announced before it is marked.
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
        let FlushState { area, propagator, kept, erring, .. } = self;
        for (kept, rows, taken) in [
            (kept, area.rows_in_use(), &mut self.taken),
            (erring, area.shared_row(rows::RAISED_ERROR), &mut self.erring_taken),
        ] {
            kept.let_go(|lines, _| of_groups(ids, propagator, lines), taken);
            // Found below.
            taken.clear();
            for run in ids.chunk_by(|&a, &b| a + 1 == b) {
                let end = (run[run.len() - 1] as usize + 1) * self.lines;
                let lines = Lines::Range(run[0] as usize * self.lines..end);
                area.find_dirty(rows.clone(), &lines, |lines| taken.push(lines));
            }
            area.take_dirty(taken);
        }
        self.found = self.taken.len();
        // Not a flush that anybody asked for.
        let report = self.report();
        self.propagator.begin();
        self.bring_up();
        self.finish();
        self.forget(ids);
        self.propagator.report = report;
    }

    /// Finds the dirty lines that a flush of `scope` brings up to date, but for those that are
    /// `kept`.
    fn find(
        &self,
        scope: FlushScope,
        rows: Range<usize>,
        kept: &KeptLines,
        out: &mut Vec<DirtyLines>,
    ) {
        let lines = match scope {
            FlushScope::Tree => Lines::All,
            // Without a look at any other: an exact read of one group must not cost more in a busy
            // tree.
            FlushScope::Below(root) if self.has_no_child(root) => Lines::Range(self.lines_of(root)),
            FlushScope::Below(_) => Lines::Some,
        };
        let mut which = in_scope(scope, &self.propagator);
        self.area.find_dirty(rows, &lines, |found| {
            let others = DirtyLines { bits: kept.others(found), ..found };
            let bits = which(others);
            if bits != 0 {
                out.push(DirtyLines { bits, ..found });
            }
        });
    }

    fn has_no_child(&self, id: usize) -> bool {
        self.propagator.nodes.get(id).is_some_and(|node| !node.is_inner())
    }

    fn lines_of(&self, id: usize) -> Range<usize> {
        id * self.lines..(id + 1) * self.lines
    }

    fn note_raised_error(&mut self, scope: FlushScope) {
        let mut found = std::mem::take(&mut self.erring_taken);
        if self.area.dirty_shared_lines() != self.erring.len() as u64 {
            self.find(scope, self.area.shared_row(rows::RAISED_ERROR), &self.erring, &mut found);
        }
        if self.erring.len() + count(&found) <= BUSY_MAX {
            self.erring.adopt(&found);
            found.clear();
        }
        // Updaters add by locked instructions, and look at the mark afterwards: to take it needs no
        // barrier, so that cold ones go at any time.
        // But none elsewhere: what is taken here is noted.
        let mut which = in_scope(scope, &self.propagator);
        self.erring.let_go(|lines, ages| which(lines) & ages.cold(), &mut found);
        self.area.take_dirty(&mut found);
        self.erring_taken = found;
        let raised = self.area.shared_lines(rows::RAISED_ERROR);
        let covered = self.area.shared_lines(rows::COVERED_ERROR);
        let is_same = |_, line: usize| {
            let mut words = raised[line].iter().zip(&covered[line]);
            // SeqCst: as below. Relaxed: the flusher's own.
            words.all(|(raised, covered)| {
                raised.load(Ordering::SeqCst) == covered.load(Ordering::Relaxed)
            })
        };
        let range = self.range_of(scope);
        look(&mut self.erring, scope, range, &self.propagator, is_same, &mut self.changed);
        for line in self.erring_taken.iter().chain(&self.changed).flat_map(|erring| erring.lines())
        {
            // SeqCst: before the marks are taken, as `take` says.
            let load = |n: usize| raised[line][n].load(Ordering::SeqCst);
            self.noted.push((line, std::array::from_fn(load)));
        }
        empty(&mut self.changed);
    }

    /// The only lines that a flush of `scope` looks at, if it is a group without children.
    fn range_of(&self, scope: FlushScope) -> Option<Range<usize>> {
        match scope {
            FlushScope::Below(root) if self.has_no_child(root) => Some(self.lines_of(root)),
            _ => None,
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
        if !self.taken.is_empty() {
            if let Err(error) = barrier(&self.area) {
                self.area.restore_dirty(&self.taken);
                self.area.restore_dirty(&self.erring_taken);
                self.kept.end(&self.shown);
                self.clear();
                return Err(error);
            }
            self.barrier_ns = Some(self.now_ns);
        }
        self.propagator.begin();
        self.look_at_kept(scope);
        self.bring_up();
        Ok(())
    }

    /// Finds out which lines of `scope` that keep their marks have changed.
    pub(super) fn look_at_kept(&mut self, scope: FlushScope) {
        let range = self.range_of(scope);
        let view = View::of(&self.area, &self.last);
        let is_same = |row, line| view.is_same(row, line);
        look(&mut self.kept, scope, range, &self.propagator, is_same, &mut self.changed);
    }

    pub(super) fn bring_up(&mut self) {
        if self.taken.is_empty() && self.changed.is_empty() {
            return;
        }
        // Before the totals change, and what was read of kept lines, and before marks are released.
        self.shown.begin();
        let view = View::of(&self.area, &self.last);
        let (found, let_go) = self.taken.split_at(self.found);
        self.changed.extend_from_slice(found);
        for &lines in let_go {
            // Most have not changed: what is visited is what has.
            let has_changed = |line: &usize| !view.is_same(lines.row as usize, *line);
            let bits =
                lines.lines().filter(has_changed).fold(0, |bits, line| bits | 1 << (line % 64));
            if bits != 0 {
                self.changed.push(DirtyLines { bits, ..lines });
            }
        }
        // By line, so that a group is visited once, for all of its rows.
        self.changed.sort_unstable_by_key(|lines| (lines.word, lines.row));
        self.propagator.propagate(view, &self.changed);
    }

    /// Shows readers that the totals have it, once they do.
    pub(super) fn finish(&mut self) {
        let covered = self.area.shared_lines(rows::COVERED_ERROR);
        for (line, noted) in &self.noted {
            for (covered, &noted) in covered[*line].iter().zip(noted) {
                // Release: after the totals were stored; pairs with the Acquire in
                // `GroupStats::pending_error`. A plain store: only the flusher stores here.
                covered.store(noted, Ordering::Release);
            }
        }
        self.area.release_dirty(&self.taken);
        self.area.release_dirty(&self.erring_taken);
        self.kept.end(&self.shown);
        self.clear();
    }

    fn clear(&mut self) {
        empty(&mut self.taken);
        empty(&mut self.erring_taken);
        empty(&mut self.changed);
        empty(&mut self.noted);
    }

    pub(super) fn report_after(&mut self, duration: Duration) -> FlushReport {
        self.propagator.report.duration = duration;
        self.propagator.report
    }

    /// Removes groups whose last handle is gone; what they counted is in their ancestors' totals.
    pub(super) fn forget(&mut self, ids: &mut [u32]) {
        self.propagator.forget(ids, &self.last, self.area.rows_in_use());
    }

    pub(super) fn nodes(&self) -> &NodeTable<BlockRef<Lineage>> {
        &self.propagator.nodes
    }

    /// Appends the lines of a group as they were read last, each the sum over all rows.
    pub(super) fn own(&mut self, id: u32, words: &mut Vec<i64>) {
        let last = self.last.lines();
        for line in self.lines_of(id as usize) {
            let mut sum = [0_i64; LINE_WORDS];
            for row in self.area.rows_in_use() {
                for (sum, last) in sum.iter_mut().zip(last.line(row, line)) {
                    // Relaxed: the flusher's own.
                    *sum = sum.wrapping_add(last.load(Ordering::Relaxed));
                }
            }
            words.extend(sum);
        }
    }

    /// Gives back the memory of lines that no group has.
    pub(super) fn discard(&mut self, lines: Range<usize>) {
        // An error leaves memory committed, and nothing wrong: it is zero since its group was
        // forgotten.
        let _ = self.last.discard(lines);
    }

    #[cfg(test)]
    pub(super) fn take_visits(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.propagator.visits)
    }

    /// How many elements its lists have room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lists = [self.taken.capacity(), self.changed.capacity(), self.noted.capacity()];
        lists.iter().sum::<usize>() + self.propagator.nodes.capacity()
    }

    /// Whether nothing is left of the last flush.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        let lists =
            [self.taken.len(), self.erring_taken.len(), self.changed.len(), self.noted.len()];
        lists == [0; 4] && self.propagator.is_at_rest()
    }
}

fn count(lines: &[DirtyLines]) -> usize {
    lines.iter().map(|lines| lines.bits.count_ones() as usize).sum()
}

/// Whether a flush that found so many lines clears marks, rather than keep them all.
fn is_barrier_due(kept: &KeptLines, found: usize, last_ns: Option<u64>, now_ns: u64) -> bool {
    let spaced = last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= SPACING_NS);
    let room = if spaced { QUIET_MAX } else { BUSY_MAX };
    kept.len() + found > room || spaced && kept.cold() > COLD_MAX
}

/// Looks at those `kept` lines that are in `scope`, or in `range`, if that is all of it.
fn look(
    kept: &mut KeptLines,
    scope: FlushScope,
    range: Option<Range<usize>>,
    propagator: &Propagator,
    is_same: impl Fn(usize, usize) -> bool,
    changed: &mut Vec<DirtyLines>,
) {
    match range {
        Some(range) => kept.look_among(&range, is_same, changed),
        None => kept.look(in_scope(scope, propagator), is_same, changed),
    }
}

/// Returns a filter for lines of the groups of `scope`.
fn in_scope(scope: FlushScope, propagator: &Propagator) -> impl FnMut(DirtyLines) -> u64 {
    let mut has = scope.groups(&propagator.nodes);
    move |lines| match scope {
        FlushScope::Tree => lines.bits,
        FlushScope::Below(_) => of_which(propagator, lines, &mut has),
    }
}

/// Returns those of `lines` that are of these groups, which are in order.
fn of_groups(ids: &[u32], propagator: &Propagator, lines: DirtyLines) -> u64 {
    of_which(propagator, lines, |id| ids.binary_search(&(id as u32)).is_ok())
}

fn of_which(propagator: &Propagator, lines: DirtyLines, mut has: impl FnMut(usize) -> bool) -> u64 {
    let first = lines.word as usize * 64;
    let (mut rest, mut wanted) = (lines.bits, 0);
    while rest != 0 {
        let (id, mask) = propagator.group_of(first + rest.trailing_zeros() as usize, first);
        rest &= !mask;
        if has(id) {
            wanted |= lines.bits & mask;
        }
    }
    wanted
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
