//! What each command does.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod load;
mod report;
pub(crate) mod serve;
pub(crate) mod signals;
