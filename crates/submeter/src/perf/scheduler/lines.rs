//! The lines: for each group, its event groups in the order in which they come to their turn.
//!
//! A switch walks the lines of the groups of two chains. To serve several lines as if they were one, it takes the first of
//! all of them by number, again and again: numbers grow with each attaching and each turn, so that every line is
//! sorted by itself.

use super::index::Index;
use super::{GroupKey, Scope};

/// Where a line is. The first one is that of the events for all groups.
pub(super) type LineId = u32;

/// The line of events for all groups.
pub(super) const EVERYWHERE: LineId = 0;

/// One event group in its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) order: u64,
    /// Its slot in the scheduler.
    pub(super) slot: u32,
}

/// One line of the cache.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Line {
    // Not rings: a switch walks them, and they turn only when events take turns.
    pub(super) pinned: Vec<Place>,
    pub(super) flexible: Vec<Place>,
    /// How many of them need counters, of which there may be too few.
    needy: u32,
    /// The last of the scheduler's turns that it took part in.
    turn: u64,
}

impl Line {
    /// Returns whether it matters in which order its event groups are placed among those of other lines.
    #[inline]
    pub(super) fn contends(&self) -> bool {
        self.needy > 0 || !self.pinned.is_empty()
    }

    pub(super) fn of(&self, pinned: bool) -> &[Place] {
        if pinned { &self.pinned } else { &self.flexible }
    }

    /// Both kinds, pinned first.
    pub(super) fn all(&self) -> impl Iterator<Item = Place> {
        self.pinned.iter().chain(&self.flexible).copied()
    }
}

/// So many event groups of one group lie without room between those of its neighbours: most have no more.
const FEW: usize = 4;

/// A place in the walk over several lines.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    line: LineId,
    next: usize,
}

#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    free: Vec<LineId>,
    /// Of the groups that have any.
    by_group: Index,
    next_order: u64,
    /// The walk that is under way; kept, so that none allocates.
    cursors: Vec<Cursor>,
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines {
            lines: vec![Line::default()],
            free: Vec::new(),
            by_group: Index::new(),
            next_order: 0,
            cursors: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn find(&self, group: GroupKey) -> Option<LineId> {
        self.by_group.find(group)
    }

    pub(super) fn line(&self, line: LineId) -> &Line {
        &self.lines[line as usize]
    }

    /// How many groups have events.
    pub(super) fn groups(&self) -> usize {
        self.by_group.groups()
    }

    /// Makes room for a walk over so many lines.
    pub(super) fn reserve_walk(&mut self, lines: usize) {
        self.cursors.clear();
        self.cursors.reserve(lines);
    }

    /// Puts `slot` at the end of its line, which is made if need be.
    pub(super) fn push(&mut self, scope: Scope, pinned: bool, needy: bool, slot: u32) -> LineId {
        let line = match scope {
            Scope::Everywhere => EVERYWHERE,
            Scope::Group(group) => self.find(group).unwrap_or_else(|| {
                let line = self.free.pop().unwrap_or_else(|| {
                    self.lines.push(Line::default());
                    (self.lines.len() - 1) as LineId
                });
                self.by_group.insert(group, line);
                line
            }),
        };
        let place = Place { order: self.order(), slot };
        let to = &mut self.lines[line as usize];
        to.needy += u32::from(needy);
        let to = if pinned { &mut to.pinned } else { &mut to.flexible };
        if to.len() < FEW {
            to.reserve_exact(1);
        }
        to.push(place);
        line
    }

    /// Takes `slot`, which was pushed with the same `scope` and `needy`, out of its line. Returns whether that was the line's last, which is then gone.
    pub(super) fn take(&mut self, scope: Scope, needy: bool, slot: u32) -> bool {
        let line = match scope {
            Scope::Everywhere => Some(EVERYWHERE),
            Scope::Group(group) => self.find(group),
        };
        let Some(line) = line else { return false };
        let Line { pinned, flexible, needy: count, .. } = &mut self.lines[line as usize];
        *count -= u32::from(needy);
        pinned.retain(|place| place.slot != slot);
        flexible.retain(|place| place.slot != slot);
        let emptied = pinned.is_empty() && flexible.is_empty() && line != EVERYWHERE;
        if let (true, Scope::Group(group)) = (emptied, scope) {
            self.by_group.remove(group);
            self.free.push(line);
        }
        emptied
    }

    /// Sends the flexible event group that is first in all of `lines` to the end.
    pub(super) fn send_first_to_end(&mut self, lines: impl Iterator<Item = LineId>) {
        let first = |line: &LineId| Some(self.line(*line).flexible.first()?.order);
        let with_first = lines.filter_map(|line| Some((first(&line)?, line)));
        let Some((_, line)) = with_first.min() else { return };
        let order = self.order();
        let line = &mut self.lines[line as usize].flexible;
        line.rotate_left(1);
        if let Some(place) = line.last_mut() {
            place.order = order;
        }
    }

    /// Notes that `line` takes part in `turn`. Returns whether it had not yet.
    #[inline]
    pub(super) fn take_turn(&mut self, line: LineId, turn: u64) -> bool {
        std::mem::replace(&mut self.lines[line as usize].turn, turn) != turn
    }

    /// Begins to walk over `lines` in the order of the places. For [`next`](Lines::next).
    pub(super) fn walk(&mut self, lines: impl Iterator<Item = LineId>) {
        self.cursors.clear();
        self.cursors.extend(lines.map(|line| Cursor { line, next: 0 }));
    }

    /// Returns the next place of the walk.
    pub(super) fn next(&mut self, pinned: bool) -> Option<u32> {
        let Lines { lines, cursors, .. } = self;
        let at = |cursor: &Cursor| lines[cursor.line as usize].of(pinned).get(cursor.next).copied();
        let with_place = cursors.iter_mut().filter_map(|cursor| Some((at(cursor)?, cursor)));
        let (place, cursor) = with_place.min_by_key(|(place, _)| place.order)?;
        cursor.next += 1;
        Some(place.slot)
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}
