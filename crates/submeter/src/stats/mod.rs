//! The sums of numbers, from a group to its ancestors.

pub(crate) mod flush;
pub(crate) mod rstat;
