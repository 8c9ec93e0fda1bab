//! Which lines keep their marks, and for how long: the policy above [`Kept`].

use std::sync::Arc;

use submeter_percpu::dirty::Kept;
use submeter_percpu::storage::{Area, DirtyLines, LINE_WORDS};

/// The most lines of a tree that keep their mark: a flush looks at each, and so does a reader of a
/// quiet tree. Where more than these change in one flush, its barrier is a small part of it.
pub(super) const LINES_MAX: usize = 64;

/// A line that was taken in so many flushes, one soon after the other, keeps its mark from then on.
pub(super) const STREAK: u32 = 3;

/// How many flushes may lie between two of a streak: those of other parts of the tree.
const GAP: u32 = 4;

/// A kept line that did not change in so many flushes loses its mark with the next that issues a
/// barrier anyway, or with the next of all if it is one of many.
pub(super) const COLD: u32 = 8;

/// How many of those are many.
pub(super) const COLD_MAX: usize = LINES_MAX / 4;

/// A line of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    row: u32,
    line: u32,
}

impl Place {
    /// As one of 64.
    fn dirty_lines(self) -> DirtyLines {
        DirtyLines { row: self.row, word: self.line / 64, bits: 1 << (self.line % 64) }
    }
}

/// A line that keeps its mark.
#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    /// Whose line it is.
    group: u32,
    /// In how many flushes it did not change, since it did.
    unchanged: u32,
}

/// In which flush a line was taken last, and how many there were before that, one soon after the
/// other.
#[derive(Clone, Copy, Debug)]
struct Seen {
    place: Place,
    flush: u32,
    streak: u32,
}

/// The lines that keep their marks. What was read of them last is in their slot, not in the owned
/// rows: side by side, in place of a page each.
#[derive(Debug)]
pub(super) struct KeptLines {
    shared: Arc<Kept<LINE_WORDS>>,
    /// Lines of a group.
    each: usize,
    /// By slot.
    entries: Vec<Entry>,
    /// The same lines, those of 64 together.
    lines: Vec<DirtyLines>,
    /// By hash of the place: lines that were taken. The later takes the earlier's place.
    seen: Vec<Option<Seen>>,
    /// How many flushes there were.
    flush: u32,
}

impl KeptLines {
    /// For groups of `each` lines.
    pub(super) fn new(each: usize) -> KeptLines {
        KeptLines {
            shared: Arc::new(Kept::new(LINES_MAX)),
            each,
            entries: Vec::new(),
            lines: Vec::new(),
            seen: Vec::new(),
            flush: 0,
        }
    }

    /// What readers compare.
    pub(super) fn shared(&self) -> &Arc<Kept<LINE_WORDS>> {
        &self.shared
    }

    /// The lines whose marks a flush must not take as those of others.
    pub(super) fn lines(&self) -> &[DirtyLines] {
        &self.lines
    }

    /// Begins a flush, of which readers notice nothing yet. It must [end](KeptLines::end).
    pub(super) fn begin(&mut self) {
        self.flush = self.flush.wrapping_add(1);
    }

    /// Tells readers that totals of lines that were taken are about to change.
    pub(super) fn totals_change(&self) {
        self.shared.begin();
    }

    /// Ends a flush: once totals are stored, and marks that were taken are released. A mark that a
    /// line got since the last flush is told of too, whether or not the line has changed.
    pub(super) fn end(&self, area: &Area) {
        let marked = |&lines: &DirtyLines| u64::from(area.dirty_among(lines).count_ones());
        self.shared.end(self.entries.len(), self.lines.iter().map(marked).sum());
    }

    /// Lets the lines of the groups `dead` go, which are in order, and of those in scope the cold
    /// ones, if there is a barrier anyway or there are many. Of each, `left` gets the line and what
    /// was read of it last, to take its mark and read it once more.
    pub(super) fn let_go(
        &mut self,
        mut barrier: bool,
        dead: &[u32],
        mut in_scope: impl FnMut(u32) -> bool,
        mut left: impl FnMut(DirtyLines, usize, [i64; LINE_WORDS]),
    ) {
        let cold = |entry: &Entry| entry.unchanged >= COLD;
        barrier |= self.entries.iter().filter(|entry| cold(entry)).count() > COLD_MAX;
        if dead.is_empty() && !barrier {
            return;
        }
        let ends = |group: u32| dead.binary_search(&group).is_ok();
        let (before, mut slot) = (self.entries.len(), 0);
        while let Some(entry) = self.entries.get(slot) {
            let Entry { place, group, .. } = *entry;
            let goes = ends(group) || barrier && cold(entry) && in_scope(group);
            if !goes {
                slot += 1;
                continue;
            }
            left(place.dirty_lines(), place.line as usize, self.shared.last(slot));
            self.entries.swap_remove(slot);
            if let Some(moved) = self.entries.get(slot) {
                let last = self.shared.last(self.entries.len());
                self.shared.put(slot, moved.place.row, moved.place.line, &last);
            }
        }
        self.note_lines_unless(before);
    }

    /// Returns a bit for each slot whose line is of a group that `has` names.
    pub(super) fn slots_of(&self, mut has: impl FnMut(usize) -> bool) -> u64 {
        let groups = self.entries.iter().map(|entry| entry.group as usize).enumerate();
        groups.fold(0, |slots, (slot, group)| slots | u64::from(has(group)) << slot)
    }

    /// Reads the lines in `slots`, and calls `changed` with each that differs from last time, and
    /// by how much.
    pub(super) fn read(
        &mut self,
        area: &Area,
        slots: u64,
        mut changed: impl FnMut(usize, &[i64; LINE_WORDS]),
    ) {
        const { assert!(LINES_MAX <= 64) };
        let data = area.data();
        for (slot, entry) in self.entries.iter_mut().enumerate() {
            let (row, line) = (entry.place.row as usize, entry.place.line as usize);
            if slots >> slot & 1 == 0 {
                continue;
            }
            entry.unchanged = entry.unchanged.saturating_add(1);
            if let Some(new) = self.shared.advance(slot, &data.load_line(row, line)) {
                entry.unchanged = 0;
                changed(line, &new);
            }
        }
    }

    /// Returns the row and the number of each kept line of a group, and what was read of it last.
    /// Looks at all lines once, rather than once for each line of the group in each row.
    pub(super) fn lines_of(
        &self,
        group: u32,
    ) -> impl Iterator<Item = (usize, usize, [i64; LINE_WORDS])> {
        let entries =
            self.entries.iter().enumerate().filter(move |(_, entry)| entry.group == group);
        entries.map(|(slot, Entry { place, .. })| {
            (place.row as usize, place.line as usize, self.shared.last(slot))
        })
    }

    /// Learns of the lines that a flush took, and keeps those that come again and again, but for
    /// those of groups that `may_stay` refuses. `last` returns what was read of a line of a row.
    pub(super) fn learn(
        &mut self,
        taken: &[DirtyLines],
        mut may_stay: impl FnMut(u32) -> bool,
        mut last: impl FnMut(usize, usize) -> [i64; LINE_WORDS],
    ) {
        let lines: u32 = taken.iter().map(|taken| taken.bits.count_ones()).sum();
        if lines == 0 || lines as usize > LINES_MAX {
            return;
        }
        let before = self.entries.len();
        self.seen.resize(4 * LINES_MAX, None);
        for taken in taken {
            for line in taken.lines() {
                let place = Place { row: taken.row, line: line as u32 };
                let group = (line / self.each) as u32;
                if self.streak(place) < STREAK
                    || self.entries.len() == LINES_MAX
                    || !may_stay(group)
                {
                    continue;
                }
                let last = last(place.row as usize, line);
                self.shared.put(self.entries.len(), place.row, place.line, &last);
                self.entries.push(Entry { place, group, unchanged: 0 });
            }
        }
        self.note_lines_unless(before);
    }

    /// Notes that a line was taken; returns in how many flushes, one soon after the other.
    fn streak(&mut self, place: Place) -> u32 {
        let at = (place.line as usize * 2 + place.row as usize) % self.seen.len();
        let before = self.seen[at]
            .filter(|seen| seen.place == place && self.flush.wrapping_sub(seen.flush) <= GAP);
        let streak = before.map_or(1, |seen| seen.streak.saturating_add(1));
        self.seen[at] = Some(Seen { place, flush: self.flush, streak });
        streak
    }

    /// Notes which lines there are, unless there are as many as `before`: lines only come in one
    /// place, and only go in another.
    fn note_lines_unless(&mut self, before: usize) {
        if self.entries.len() == before {
            return;
        }
        self.lines.clear();
        for entry in &self.entries {
            let new = entry.place.dirty_lines();
            let at = |lines: &&mut DirtyLines| (lines.row, lines.word) == (new.row, new.word);
            match self.lines.iter_mut().find(at) {
                Some(lines) => lines.bits |= new.bits,
                None => self.lines.push(new),
            }
        }
    }
}
