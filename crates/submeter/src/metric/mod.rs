//! Metrics and their units, and the values that readers get.

pub(crate) mod histogram;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod totals;
pub(crate) mod unit;
pub(crate) mod usage;
