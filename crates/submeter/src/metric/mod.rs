//! What is measured: metrics and their units, and what a reader is given of them.

pub(crate) mod histogram;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod totals;
pub(crate) mod unit;
pub(crate) mod usage;
