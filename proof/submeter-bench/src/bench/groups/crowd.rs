//! A tree with a given number of groups, created on first use.

use std::io;
use std::sync::{Arc, OnceLock};

use submeter::{Count, Counter, Group, Nanoseconds, Schema, Tree, TreeBuilder};

/// Children of each parent.
const SIBLINGS: usize = 1000;
/// Metrics in addition to CPU time, which together fill one cache line.
const COUNTERS: usize = 7;
/// Room for groups that are created and killed in addition to the crowd.
const SPARE: usize = 10_000;

/// A tree that is created once and shared by the cells that measure it.
pub(super) struct Crowd {
    size: usize,
    made: OnceLock<Arc<Made>>,
}

/// The tree and its leaves.
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

    /// Returns the tree. The first call creates it.
    pub(super) fn get(&self) -> io::Result<Arc<Made>> {
        if let Some(made) = self.made.get() {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(Made::new(self.size, |builder| builder)?);
        Ok(Arc::clone(self.made.get_or_init(|| made)))
    }
}

impl Made {
    /// Makes a tree of `size` leaves; `more` may set further options of the builder.
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

    /// Returns the leaf for `number`: consecutive numbers give leaves far apart, and every leaf
    /// comes equally often.
    #[inline]
    pub(super) fn any(&self, number: usize) -> &Group {
        // A prime that does not divide any size.
        const STEP: usize = 7_368_787;
        &self.leaves[number.wrapping_mul(STEP) % self.leaves.len()]
    }
}

/// Makes a tree with only a root, and room for `size` leaves.
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
