//! The flusher's side: finds the changes, in the whole tree or below one group.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter_percpu::dirty::KeptView;
use submeter_percpu::storage::{Area, BlockRef, DirtyLines, LINE_WORDS, Lines, OwnedRows};

use super::Lineage;
use super::kept_lines::{BUSY_MAX, COLD_MAX, KeptLines, QUIET_MAX};
use super::propagate::{Candidate, Propagator, View};
use super::scope::{FlushScope, ScopeLines, of_groups};
use crate::stats::flush::node_table::{Birth, NodeTable};
use crate::stats::flush::reuse::empty;

/// Groups that are new to the flush.
pub(super) type Births = VecDeque<Birth<BlockRef<Lineage>>>;

/// The results of a flush.
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
    /// Whether the caller shared a flush that another caller had begun after this one asked. The
    /// other fields are then those of that flush, or of the last one.
    pub joined: bool,
}

/// Writes `3 groups, 5 lines in 41µs`, followed by `, shared` if the caller joined another's flush.
impl fmt::Display for FlushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlushReport { groups, lines, duration, joined } = self;
        let shared = if *joined { ", shared" } else { "" };
        write!(f, "{groups} groups, {lines} lines in {duration:.0?}{shared}")
    }
}

impl FlushReport {
    /// Adds the report of a later flush to this one.
    pub(crate) fn and(self, more: FlushReport) -> FlushReport {
        FlushReport {
            groups: self.groups + more.groups,
            lines: self.lines + more.lines,
            duration: self.duration + more.duration,
            joined: self.joined && more.joined,
        }
    }
}

/// The state that one flush hands to the next; locked while one runs.
pub(crate) struct FlushState {
    area: Area,
    lines: usize,
    last: Arc<OwnedRows>,
    propagator: Propagator,
    /// The lines of the scope of the flush.
    which: ScopeLines,
    /// Lines of data that keep their marks.
    pub(super) kept: KeptLines,
    /// Where readers find the kept lines.
    shown: Arc<KeptView>,
    /// The start of this flush, in ns after the tree's start.
    now_ns: u64,
    /// When the last flush that issued a barrier began.
    pub(super) barrier_ns: Option<u64>,
    /// Lines whose marks were taken. Emptied by each flush, like the lists below.
    taken: Vec<DirtyLines>,
    /// Lines that may have changed: those that were taken, and those that are kept.
    candidates: Vec<Candidate>,
}

impl FlushState {
    pub(super) fn new(
        area: Area,
        last: Arc<OwnedRows>,
        shown: Arc<KeptView>,
        lines: usize,
        levels: &[usize],
    ) -> FlushState {
        FlushState {
            area,
            lines,
            last,
            propagator: Propagator::new(lines, levels),
            which: ScopeLines::new(FlushScope::Tree),
            kept: KeptLines::default(),
            shown,
            now_ns: 0,
            barrier_ns: None,
            taken: Vec::new(),
            candidates: Vec::new(),
        }
    }

    pub(super) fn report(&self) -> FlushReport {
        self.propagator.report
    }

    /// Learns of groups. Parents come before their children.
    pub(super) fn learn(&mut self, births: Births) {
        if !births.is_empty() {
            self.learn_some(births);
        }
    }

    #[cold]
    fn learn_some(&mut self, births: Births) {
        self.which.forget();
        self.propagator.nodes.learn(births);
    }

    /// Finds out what is marked, and takes the marks that do not stay.
    ///
    /// `announced` returns the groups that were announced since it was last called. `dead` lists,
    /// in order, the groups to be forgotten after this flush, which began at `now_ns`.
    pub(super) fn take(
        &mut self,
        scope: FlushScope,
        dead: &[u32],
        now_ns: u64,
        announced: impl Fn() -> Births,
    ) {
        self.now_ns = now_ns;
        self.which.set(scope);
        let mut found = std::mem::take(&mut self.taken);
        // The count of marks includes those of kept lines: if it is no higher than their number,
        // there are no others.
        if self.area.dirty_lines(u64::MAX) != self.kept.len() as u64 {
            self.find(scope, &mut found);
        }
        let FlushState { area, propagator, kept, which, .. } = self;
        let since = |last_ns| Duration::from_nanos(now_ns.saturating_sub(last_ns));
        let spaced = self.barrier_ns.is_none_or(|last_ns| since(last_ns) >= area.barrier_spacing());
        let barrier = is_barrier_due(kept, count(&found), spaced);
        if barrier {
            kept.let_go(|lines, ages| which.of(propagator, lines) & ages.unchanged(), &mut found);
        } else {
            kept.adopt(&found);
            found.clear();
        }
        if !dead.is_empty() {
            kept.let_go(|lines, _| of_groups(dead, propagator, lines), &mut found);
        }
        area.take_dirty(&mut found);
        self.taken = found;
        if scope == FlushScope::Tree {
            // Again, now that all marks were found: a group is announced before it is marked.
            self.learn(announced());
        }
    }

    /// Carries the remaining counts of dead groups to the totals above them, and forgets the
    /// groups. `ids` are in order.
    ///
    /// Issues no barrier, and takes no mark but theirs: no thread adds to their words any longer,
    /// and all adds came before the end of the last handle, which the lock of the queue has ordered
    /// before this. The pending error above them counts until the next flush, because this has no
    /// flush number.
    pub(super) fn reclaim(&mut self, ids: &mut [u32]) {
        let FlushState { area, propagator, kept, taken, .. } = self;
        kept.let_go(|lines, _| of_groups(ids, propagator, lines), taken);
        // They are found again below.
        taken.clear();
        for run in ids.chunk_by(|&a, &b| a + 1 == b) {
            let end = (run[run.len() - 1] as usize + 1) * self.lines;
            let lines = Lines::Range(run[0] as usize * self.lines..end);
            area.find_dirty(&lines, |lines| taken.push(lines));
        }
        area.take_dirty(taken);
        // Not a flush that a caller asked for, so its report is not kept.
        let report = self.report();
        self.propagator.begin();
        self.bring_up();
        self.finish();
        self.forget(ids);
        self.propagator.report = report;
    }

    /// Finds the dirty lines that a flush of `scope` brings up to date, except those that are kept.
    #[inline(never)]
    fn find(&self, scope: FlushScope, out: &mut Vec<DirtyLines>) {
        let lines = match scope {
            FlushScope::Tree => Lines::All,
            // Looks at no other lines: an exact read of one group must not cost more in a busy
            // tree.
            FlushScope::Below(root) if self.has_no_child(root) => Lines::Range(self.lines_of(root)),
            FlushScope::Below(_) => Lines::Some,
        };
        self.area.find_dirty(&lines, |found| {
            let others = DirtyLines { bits: self.kept.others(found), ..found };
            let bits = if others.bits == 0 { 0 } else { self.which.of(&self.propagator, others) };
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

    /// Returns the only lines that a flush of `scope` looks at, if that is a group without
    /// children.
    fn range_of(&self, scope: FlushScope) -> Option<Range<usize>> {
        match scope {
            FlushScope::Below(root) if self.has_no_child(root) => Some(self.lines_of(root)),
            _ => None,
        }
    }

    /// Carries what changed in `scope` to the totals. If `barrier` fails, nothing has happened yet:
    /// taken lines are marked again, and the next flush finds them. If it takes too long, the lines
    /// are marked again and still read, because lines that keep their marks need no barrier.
    /// Returns whether marks were cleared.
    pub(super) fn propagate(
        &mut self,
        scope: FlushScope,
        barrier: impl FnOnce(&Area) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut cleared = true;
        // Lines that keep their marks need no barrier.
        if !self.taken.is_empty() {
            if let Err(error) = barrier(&self.area) {
                self.area.restore_dirty(&self.taken);
                cleared = false;
                if error.kind() != io::ErrorKind::TimedOut {
                    self.kept.end(&self.shown);
                    self.clear();
                    return Err(error);
                }
            }
            // Noted even if it took too long: the next is spaced from it.
            self.barrier_ns = Some(self.now_ns);
        }
        self.propagator.begin();
        self.list_kept(scope);
        self.bring_up();
        if !cleared {
            // They are marked again, so there is nothing to release.
            self.taken.clear();
        }
        Ok(cleared)
    }

    /// Lists the lines of `scope` that keep their marks.
    pub(super) fn list_kept(&mut self, scope: FlushScope) {
        self.kept.list(self.range_of(scope), &self.which, &self.propagator, &mut self.candidates);
    }

    pub(super) fn bring_up(&mut self) {
        if !self.taken.is_empty() {
            self.list_taken();
        }
        let view = View::of(&self.area, &self.last);
        // `begin` comes before the totals and the copies of kept lines change.
        self.propagator.propagate(view, &mut self.candidates, || self.shown.begin());
        self.kept.note(&self.candidates);
    }

    /// Lists the lines whose marks were taken, beside those that keep theirs.
    #[cold]
    fn list_taken(&mut self) {
        // Even if none of them has changed: their marks are released.
        self.shown.begin();
        self.candidates.extend(self.taken.iter().copied().map(Candidate::taken));
        // Sorted by line, so that a group is visited once for all of its rows.
        self.candidates.sort_unstable_by_key(|at| (at.lines.word, at.lines.row));
    }

    /// Shows readers that the totals are up to date. Call it once they are.
    pub(super) fn finish(&mut self) {
        self.area.release_dirty(&self.taken);
        self.kept.end(&self.shown);
        self.clear();
    }

    fn clear(&mut self) {
        empty(&mut self.taken);
        empty(&mut self.candidates);
    }

    pub(super) fn report_after(&mut self, duration: Duration) -> FlushReport {
        self.propagator.report.duration = duration;
        self.propagator.report
    }

    /// Removes groups whose last handle is gone; their counts are in their ancestors' totals.
    pub(super) fn forget(&mut self, ids: &mut [u32]) {
        self.which.forget();
        self.propagator.forget(ids, &self.last, self.area.marked_rows());
    }

    pub(super) fn nodes(&self) -> &NodeTable<BlockRef<Lineage>> {
        &self.propagator.nodes
    }

    /// Appends the lines of a group as they were last read, each the sum over all rows, with what
    /// passed to the group.
    pub(super) fn own(&mut self, id: u32, words: &mut Vec<i64>) {
        let (last, begin) = (self.last.lines(), words.len());
        for line in self.lines_of(id as usize) {
            let mut sum = [0_i64; LINE_WORDS];
            for row in self.area.marked_rows() {
                for (sum, last) in sum.iter_mut().zip(last.line(row, line)) {
                    // Relaxed: the flusher's own.
                    *sum = sum.wrapping_add(last.load(Ordering::Relaxed));
                }
            }
            words.extend(sum);
        }
        self.propagator.remains.add_to(id as usize, &mut words[begin..]);
    }

    /// Gives back the memory of lines that belong to no group.
    pub(super) fn discard(&mut self, lines: Range<usize>) {
        // An error leaves memory committed and does no other harm: the memory has been zero since
        // its group was forgotten.
        let _ = self.last.discard(lines);
    }

    #[cfg(test)]
    pub(super) fn take_visits(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.propagator.visits)
    }

    /// Returns the capacity of its lists, in elements.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lists = [self.taken.capacity(), self.candidates.capacity()];
        lists.iter().sum::<usize>() + self.propagator.nodes.capacity()
    }

    /// Returns whether nothing is left of the last flush.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.taken.is_empty() && self.candidates.is_empty() && self.propagator.is_at_rest()
    }
}

fn count(lines: &[DirtyLines]) -> usize {
    lines.iter().map(|lines| lines.bits.count_ones() as usize).sum()
}

/// Returns whether a flush that found `found` lines clears marks, rather than keep them all.
/// `spaced` says whether the last barrier was long enough ago.
fn is_barrier_due(kept: &KeptLines, found: usize, spaced: bool) -> bool {
    let room = if spaced { QUIET_MAX } else { BUSY_MAX };
    kept.len() + found > room || spaced && kept.cold() > COLD_MAX
}
