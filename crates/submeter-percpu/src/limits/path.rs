//! The path of a charge: what the limits of a tree, of a single counter and of the models have in
//! common.

use super::common::Common;
use super::leaf::Leaf;
use super::level::Level;
use super::stock::Stock;

/// A node: a leaf, its own level, and the levels above.
pub(crate) trait Path: Sized {
    type Stock: Stock;
    fn leaf(&self) -> &Leaf<Self::Stock>;
    /// Returns its own level.
    fn level(&self) -> &Level;
    /// Returns this node and those above it, up to the root.
    fn up(&self) -> impl Iterator<Item = &Self> + Clone;
    /// Returns the levels from the leaf's own to the root's.
    fn levels(&self) -> impl Iterator<Item = &Level> + Clone {
        self.nodes().map(|(_, level)| level)
    }
    /// Does the same as [`up`](Self::up), for walks that need only these parts: a step waits for
    /// one load, not two.
    fn nodes(&self) -> impl Iterator<Item = (&Leaf<Self::Stock>, &Level)> + Clone {
        self.up().map(|at| (at.leaf(), at.level()))
    }
    /// Passes the leaves below a level that may be open to `visit`, in any order, while none opens
    /// and no other thread visits them. Returns false where it did not: in a signal handler that
    /// interrupted such a visit, and in a forked child whose fork left a thread behind in one.
    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool;
    /// Adds the leaf to those that may be open if `open` returns true; not during a visit.
    fn join(&self, open: &mut dyn FnMut() -> bool);
    fn common(&self) -> &Common;
    /// Returns whether the waits of its group have ended: never where nothing ends them.
    fn waits_have_ended(&self) -> bool {
        false
    }
    /// Tries the charges that wait at a level of this path again.
    fn serve(&self);
    /// Does the same as [`serve`](Self::serve), after a limit or its mode has changed.
    fn reconsider(&self);
    /// Records that a charge of this leaf waits from now on, or no longer waits. The queue is held.
    fn note_wait(&self, _begins: bool) {}
    /// Records which levels hold something. The queue is held.
    fn note_holders(&self) {}
    /// Does the same as [`note_holders`](Self::note_holders), without the queue held, while others
    /// wait.
    fn note_charge(&self) {}
}
