//! The scope of a flush: the groups and lines that it brings up to date.

use std::cell::Cell;

use submeter_percpu::storage::{BlockRef, DirtyLines};

use super::Lineage;
use super::propagate::Propagator;
use crate::stats::flush::node_table::NodeTable;

/// The groups that a flush brings up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushScope {
    Tree,
    /// A group and those below it, by id.
    Below(usize),
}

impl FlushScope {
    /// Returns the topmost group of the scope.
    pub(super) fn root(self) -> usize {
        match self {
            FlushScope::Tree => super::ROOT,
            FlushScope::Below(root) => root,
        }
    }

    /// Returns a filter for its groups, by id.
    pub(super) fn groups(
        self,
        nodes: &NodeTable<BlockRef<Lineage>>,
    ) -> impl FnMut(usize) -> bool + use<'_> {
        // Neighbours are mostly siblings, with one answer for all of them.
        let mut answered = None;
        let depth = match self {
            FlushScope::Tree => 0,
            FlushScope::Below(root) => nodes.get(root).map_or(usize::MAX, |node| node.depth()),
        };
        move |id| match self {
            FlushScope::Tree => true,
            FlushScope::Below(root) => is_below(nodes, id, root, depth, &mut answered),
        }
    }
}

/// The lines of the groups of a scope.
///
/// A flush asks about the same lines several times, and so does the next one: the answers for 64 of
/// them are kept until groups come or go.
#[derive(Debug)]
pub(super) struct ScopeLines {
    scope: FlushScope,
    /// The number of these 64 lines.
    word: Cell<u32>,
    /// The lines whose answers are known.
    known: Cell<u64>,
    /// The lines of the scope's groups among them.
    within: Cell<u64>,
}

impl ScopeLines {
    pub(super) fn new(scope: FlushScope) -> ScopeLines {
        ScopeLines { scope, word: Cell::new(0), known: Cell::new(0), within: Cell::new(0) }
    }

    pub(super) fn set(&mut self, scope: FlushScope) {
        if self.scope != scope {
            *self = ScopeLines::new(scope);
        }
    }

    /// Forgets the answers, because the groups have changed.
    pub(super) fn forget(&mut self) {
        self.known.set(0);
    }

    /// Returns those of `lines` that belong to the scope's groups.
    #[inline]
    pub(super) fn of(&self, propagator: &Propagator, lines: DirtyLines) -> u64 {
        match self.scope {
            FlushScope::Tree => lines.bits,
            FlushScope::Below(root) => {
                if lines.word != self.word.get() || lines.bits & !self.known.get() != 0 {
                    self.learn(propagator, root, lines);
                }
                lines.bits & self.within.get()
            }
        }
    }

    #[inline(never)]
    fn learn(&self, propagator: &Propagator, root: usize, lines: DirtyLines) {
        if lines.word != self.word.replace(lines.word) {
            self.known.set(0);
        }
        let known = self.known.get();
        let mut has = FlushScope::Below(root).groups(&propagator.nodes);
        let more =
            of_which(propagator, DirtyLines { bits: lines.bits & !known, ..lines }, &mut has);
        self.within.set(self.within.get() & known | more);
        self.known.set(known | lines.bits);
    }
}

/// Returns those of `lines` that belong to these groups, which are in order.
pub(super) fn of_groups(ids: &[u32], propagator: &Propagator, lines: DirtyLines) -> u64 {
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
    depth: usize,
    answered: &mut Option<(usize, bool)>,
) -> bool {
    if id == root {
        return true;
    }
    // No update of a group that the flusher does not know yet returned before the flush began.
    let Some(node) = nodes.get(id).filter(|node| node.depth() > depth) else { return false };
    let Some(parent) = node.parent() else { return false };
    match *answered {
        Some((of, answer)) if of == parent => answer,
        _ => {
            let answer = nodes.is_below(parent, root);
            *answered = Some((parent, answer));
            answer
        }
    }
}
