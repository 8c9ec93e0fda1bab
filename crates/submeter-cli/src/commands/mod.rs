//! What each command does.

pub(crate) mod load;
pub(crate) mod serve;
pub(crate) mod signals;
