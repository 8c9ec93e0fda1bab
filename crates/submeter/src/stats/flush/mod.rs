//! The flush engine: the steps of every flush, whatever it carries up the tree.
//!
//! [`Coalescer`](coalescer::Coalescer) decides which caller flushes and which callers a flush
//! covers, and notes groups that come and go. [`NodeTable`](node_table::NodeTable) knows the groups
//! as a flush sees them, and visits those that changed, children before parents, each once. The
//! users of the engine decide what a group has pending and how it is passed on to its parent. They
//! are numbers ([`rstat`](crate::stats::rstat)) and the state of aggregators (`aggregator`).

pub(crate) mod coalescer;
pub(crate) mod node_table;
pub(crate) mod reuse;
