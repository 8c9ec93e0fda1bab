//! Groups: their tree, the state of each, and how they come and go.

pub(crate) mod buckets;
pub(crate) mod callbacks;
pub(crate) mod children;
pub(crate) mod cpu_start;
pub(crate) mod extras;
pub(crate) mod flusher;
pub(crate) mod group;
pub(crate) mod killed;
pub(crate) mod once_list;
pub(crate) mod quotas;
#[expect(clippy::module_inception, reason = "the tree itself, in the room that has its name")]
pub(crate) mod tree;
pub(crate) mod tree_stats;
