//! Who it is measured for: groups, their tree, and how they come and go.

pub(crate) mod bound_metric;
pub(crate) mod children;
pub(crate) mod creation;
pub(crate) mod extras;
pub(crate) mod group;
pub(crate) mod killed;
#[expect(clippy::module_inception, reason = "the tree itself, in the room that has its name")]
pub(crate) mod tree;
pub(crate) mod tree_stats;
