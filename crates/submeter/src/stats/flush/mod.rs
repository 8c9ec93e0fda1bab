//! The flush engine: what every flush does, whatever it brings up the tree.
//!
//! [`Coalescer`](coalescer::Coalescer) decides who flushes and whom a flush covers, and takes note
//! of groups that come and go. [`NodeTable`](node_table::NodeTable) knows the groups as a flush
//! sees them, and visits those that changed, children before parents, each once. What a group has
//! pending, and how it is passed on to its parent, is for the user of the engine: numbers
//! ([`rstat`](crate::stats::rstat)) and what aggregators collect (`aggregator`).

pub(crate) mod coalescer;
pub(crate) mod node_table;
pub(crate) mod reuse;
