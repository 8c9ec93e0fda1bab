//! The way of a charge: what the limits of a tree, of one counter and of the models have alike.

use super::common::Common;
use super::leaf::Leaf;
use super::level::Level;
use super::stock::Stock;

/// A node: a leaf, its own level, and those above.
pub(crate) trait Path: Sized {
    type Stock: Stock;
    fn leaf(&self) -> &Leaf<Self::Stock>;
    /// Its own level.
    fn level(&self) -> &Level;
    /// This one and those above it, to the root.
    fn up(&self) -> impl Iterator<Item = &Self> + Clone;
    /// From the leaf's own to the root's.
    fn levels(&self) -> impl Iterator<Item = &Level> + Clone {
        self.nodes().map(|(_, level)| level)
    }
    /// As [`up`](Self::up), for walks that need only these: a step waits for one load, not two.
    fn nodes(&self) -> impl Iterator<Item = (&Leaf<Self::Stock>, &Level)> + Clone {
        self.up().map(|at| (at.leaf(), at.level()))
    }
    /// Shows the leaves below a level that may be open, in whatever order, while none opens and no
    /// other thread sees them. Returns false where it did not: below a signal handler that
    /// interrupted such a visit, and in a forked child where a thread stayed behind in one.
    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool;
    /// Has the leaf among those that may be open if `open` returns true; not in a visit of them.
    fn join(&self, open: &mut dyn FnMut() -> bool);
    fn common(&self) -> &Common;
    fn waits_have_ended(&self) -> bool;
    /// Has the charges that wait tried again.
    fn serve(&self);
    /// As [`serve`](Self::serve), after a limit or its mode has changed.
    fn reconsider(&self);
    /// Takes note that a charge of this leaf waits from now on, or no longer. With the queue.
    fn note_wait(&self, _begins: bool) {}
    /// Takes note of which levels hold something. With the queue.
    fn note_holders(&self) {}
    /// As [`note_holders`](Self::note_holders), without the queue: while others wait.
    fn note_charge(&self) {}
}
