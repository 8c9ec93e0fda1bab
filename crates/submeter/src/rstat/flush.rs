//! The flusher's side: what changed, in the whole tree or below one group.

use std::io;
use std::time::Duration;

use std::sync::atomic::Ordering;

use submeter_percpu::storage::{Area, LINE_WORDS, Marked, OwnedRows};

use super::book::{Book, View};
use super::nodes::{Birth, Nodes};
use super::rows;

/// Says what a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushReport {
    /// Groups whose totals were visited, each once for each set of metrics that was flushed.
    pub groups: usize,
    /// Lines of 64 bytes that were read, for all CPUs.
    pub lines: usize,
    /// From its start to its end.
    pub duration: Duration,
    /// Whether the caller shared a flush that another had begun after the caller asked; then the rest
    /// is that flush's, or the last one's.
    pub joined: bool,
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
pub(super) enum Scope {
    Tree,
    /// A group and what is below it, by id.
    Below(usize),
}

/// What one flush after another works with; locked while one runs.
pub(crate) struct Engine {
    area: Area,
    lines: usize,
    book: Book,
    /// What was found marked; emptied by each flush.
    taken: Vec<Marked>,
    /// Lines whose drift changed; emptied by each flush.
    drifted: Vec<Marked>,
    /// The drift that this flush is going to subtract, by line.
    noted: Vec<(usize, [u64; LINE_WORDS])>,
    /// The last flush of the whole tree.
    pub(super) number: u64,
}

impl Engine {
    pub(super) fn new(area: Area, last: OwnedRows, lines: usize) -> Engine {
        Engine {
            area,
            lines,
            book: Book::new(last, lines),
            taken: Vec::new(),
            drifted: Vec::new(),
            noted: Vec::new(),
            number: 0,
        }
    }

    pub(super) fn report(&self) -> FlushReport {
        self.book.report
    }

    /// Learns of groups. Parents come before their children.
    pub(super) fn learn(&mut self, births: Vec<Birth>) {
        births.into_iter().for_each(|birth| self.book.learn(birth));
    }

    /// Notes the drift that this flush will make up for, then finds out what changed. In this order: an
    /// add whose carry is noted had committed and marked before, so that its line is among those
    /// taken now, or was among those of an earlier flush.
    ///
    /// `announced` are the groups that were announced since it was last asked. Whoever added had its group announced
    /// before, so that those known once the drift is noted are all whose carries it has. Those known before are not: a
    /// flush of a part would take away the drift of a group whose marks it leaves.
    pub(super) fn take(&mut self, scope: Scope, announced: impl Fn() -> Vec<Birth>) {
        self.note_drift(scope);
        self.learn(announced());
        match scope {
            Scope::Tree => {
                self.area.take_marked(&mut self.taken);
                // Once more: all marks were taken, and whoever marked had its group announced before.
                self.learn(announced());
            }
            Scope::Below(root) if self.is_leaf(root) => {
                self.area.take_marked_lines(root * self.lines, self.lines, &mut self.taken);
            }
            Scope::Below(root) => {
                let which = below(&self.book, root);
                self.area.take_marked_some(&mut self.taken, which);
            }
        }
    }

    fn is_leaf(&self, id: usize) -> bool {
        self.book.nodes.get(id).is_some_and(|node| !node.is_inner())
    }

    fn note_drift(&mut self, scope: Scope) {
        match scope {
            Scope::Tree => self.area.take_shared(rows::DRIFT, &mut self.drifted),
            // Whatever else drifts: an exact read of a leaf must not cost more in a busy tree.
            Scope::Below(root) if self.is_leaf(root) => {
                let (first, out) = (root * self.lines, &mut self.drifted);
                self.area.take_shared_lines(rows::DRIFT, first, self.lines, out);
            }
            Scope::Below(root) => {
                let which = below(&self.book, root);
                self.area.take_shared_some(rows::DRIFT, &mut self.drifted, which);
            }
        }
        let drift = self.area.shared_lines(rows::DRIFT);
        for line in self.drifted.iter().flat_map(|drifted| drifted.lines()) {
            // SeqCst: before the marks are taken, as `take` says.
            let load = |n: usize| drift[line][n].load(Ordering::SeqCst).cast_unsigned();
            self.noted.push((line, std::array::from_fn(load)));
        }
    }

    /// Takes what changed to the totals. Where `barrier` fails nothing has happened yet: what was taken is
    /// marked again, and the next flush finds it.
    pub(super) fn carry_up(
        &mut self,
        barrier: impl FnOnce(&Area) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.taken.is_empty()
            && let Err(error) = barrier(&self.area)
        {
            self.area.restore_marked(&self.taken);
            self.area.restore_marked(&self.drifted);
            self.clear();
            return Err(error);
        }
        // By line, so that a group is visited once, for all of its rows.
        self.taken.sort_unstable_by_key(|marked| (marked.word, marked.row));
        self.book.carry_up(View::of(&self.area), &self.taken);
        Ok(())
    }

    /// Tells readers that the totals have it, once they do.
    pub(super) fn finish(&mut self) {
        let drift = self.area.shared_lines(rows::DRIFT);
        for (line, noted) in &self.noted {
            for (drift, &noted) in drift[*line].iter().zip(noted).filter(|(_, noted)| **noted != 0)
            {
                // SeqCst: after the totals were stored; pairs with the load in `Rstat::read`.
                drift.fetch_sub(noted.cast_signed(), Ordering::SeqCst);
            }
        }
        self.area.release_marked(&self.taken);
        self.area.release_marked(&self.drifted);
        self.clear();
    }

    fn clear(&mut self) {
        self.taken.clear();
        self.drifted.clear();
        self.noted.clear();
    }

    pub(super) fn report_after(&mut self, duration: Duration) -> FlushReport {
        self.book.report.duration = duration;
        self.book.report
    }

    /// Removes groups whose last handle is gone; what they counted is in their ancestors' totals.
    pub(super) fn forget(&mut self, ids: Vec<u32>) {
        self.book.forget(ids, self.area.rows_in_use());
    }

    pub(super) fn is_below(&self, id: usize, root: usize) -> bool {
        self.book.nodes.is_below(id, root)
    }

    /// Gives back the memory of lines that no group has.
    pub(super) fn discard(&mut self, lines: std::ops::Range<usize>) {
        self.book.discard(lines);
    }

    /// The groups from `id` up to the root.
    pub(super) fn upward(&self, id: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(id), |id| self.book.nodes.get(*id)?.parent())
    }

    #[cfg(test)]
    pub(super) fn take_visits(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.book.visits)
    }

    /// Whether nothing is left of the last flush.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        let lists = [self.taken.len(), self.drifted.len(), self.noted.len()];
        lists == [0; 3] && self.book.is_settled()
    }
}

/// Tells which marked lines are of groups below `root`, or of itself.
fn below(book: &Book, root: usize) -> impl FnMut(usize, u64) -> u64 {
    // Neighbours are mostly siblings: one answer for all of them.
    let mut answered = None;
    move |first, bits| {
        let (mut rest, mut wanted) = (bits, 0);
        while rest != 0 {
            let (id, mask) = book.group_of(first + rest.trailing_zeros() as usize, first);
            rest &= !mask;
            if is_below(&book.nodes, id, root, &mut answered) {
                wanted |= bits & mask;
            }
        }
        wanted
    }
}

fn is_below(nodes: &Nodes, id: usize, root: usize, answered: &mut Option<(usize, bool)>) -> bool {
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
