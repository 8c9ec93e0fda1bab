//! What each command does.

pub(crate) mod doctor;
pub(crate) mod limit;
pub(crate) mod load;
pub(crate) mod manual;
pub(crate) mod serve;
