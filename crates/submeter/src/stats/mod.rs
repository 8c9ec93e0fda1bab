//! How numbers add up, from a group to its ancestors.

pub(crate) mod flush;
pub(crate) mod rstat;
