//! A tree of so many groups, made when it is first wanted.

use std::io;
use std::sync::{Arc, OnceLock};

use submeter::{Count, Counter, Group, Nanoseconds, Schema, Tree, TreeBuilder};

/// Groups of one parent.
const SIBLINGS: usize = 1000;
/// Metrics beside CPU time: a line of words together.
const COUNTERS: usize = 7;
/// Room for what is created and killed beside the crowd.
const SPARE: usize = 10_000;

/// A tree that is made once, and shared by those who measure it.
pub(super) struct Crowd {
    size: usize,
    made: OnceLock<Arc<Made>>,
}

/// What was made.
pub(super) struct Made {
    pub(super) tree: Tree,
    pub(super) leaves: Vec<Group>,
    pub(super) counter: Counter<Count>,
}

impl Crowd {
    /// Describes a tree of `size` leaves.
    pub(super) fn new(size: usize) -> Crowd {
        Crowd { size, made: OnceLock::new() }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the tree. The first call makes it.
    pub(super) fn get(&self) -> io::Result<Arc<Made>> {
        if let Some(made) = self.made.get() {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(Made::new(self.size, |builder| builder)?);
        Ok(Arc::clone(self.made.get_or_init(|| made)))
    }
}

impl Made {
    /// Makes a tree of `size` leaves, whose builder is told more by `more`.
    pub(super) fn new(
        size: usize,
        more: impl FnOnce(TreeBuilder) -> TreeBuilder,
    ) -> io::Result<Made> {
        let (tree, counter) = empty(size, more)?;
        let mut leaves = Vec::with_capacity(size);
        grow(&tree, size, |leaf| leaves.push(leaf))?;
        tree.flush();
        Ok(Made { tree, leaves, counter })
    }

    /// Returns a leaf for each of the numbers from 0 on: another each time, in no order, and each
    /// as often as any other.
    #[inline]
    pub(super) fn any(&self, number: usize) -> &Group {
        // A prime that divides no size.
        const STEP: usize = 7_368_787;
        &self.leaves[number.wrapping_mul(STEP) % self.leaves.len()]
    }
}

/// Makes a tree with its root alone, and room for `size` leaves.
pub(super) fn empty(
    size: usize,
    more: impl FnOnce(TreeBuilder) -> TreeBuilder,
) -> io::Result<(Tree, Counter<Count>)> {
    let mut schema = Schema::builder();
    let _: Counter<Nanoseconds> = schema.cpu_time("cpu", "CPU time used");
    let counter = |n| schema.counter::<Count>(&format!("counter_{n}"), "One of seven");
    let counters: Vec<_> = (0..COUNTERS).map(counter).collect();
    let schema = schema.build().map_err(io::Error::other)?;
    let builder = Tree::builder(schema).groups_max(size + size / SIBLINGS + SPARE);
    let tree = more(builder).build().map_err(io::Error::other)?;
    Ok((tree, counters[0]))
}

/// Creates `size` leaves below parents of a thousand each.
pub(super) fn grow(tree: &Tree, size: usize, mut each: impl FnMut(Group)) -> io::Result<()> {
    for first in (0..size).step_by(SIBLINGS) {
        let parent = tree.create(&format!("/{}", first / SIBLINGS)).map_err(io::Error::other)?;
        for n in first..size.min(first + SIBLINGS) {
            each(parent.create_child(&n.to_string()).map_err(io::Error::other)?);
        }
    }
    Ok(())
}
