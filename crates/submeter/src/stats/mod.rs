//! How it adds up: numbers, and what aggregators collect, from a group to its ancestors.

#[cfg(feature = "aggregator")]
pub mod aggregator;
pub(crate) mod flush;
pub(crate) mod flusher;
pub(crate) mod rstat;
