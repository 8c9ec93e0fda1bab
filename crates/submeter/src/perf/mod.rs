//! Perf events that follow a group, multiplexed onto a limited number of counters.
//!
//! A [`Session`] counts events for the groups of a tree, on all threads. Below it, each thread has
//! a scheduler, of the crate `submeter-events`. Event groups are attached to it, for one group of
//! the tree or for all. When the thread switches to another group, the scheduler takes the events
//! of the groups that are left off their counters, and puts on those of the groups that are
//! entered. The rules are perf's:
//!
//! - An event group counts as a whole or not at all.
//! - *Pinned* event groups come first, and must always count: if an entered group has any, every
//!   flexible one is taken off before they are placed. A pinned one that finds no counter stays in
//!   [`RequestState::Error`] from then on.
//! - *Flexible* ones take turns: a rotation moves the first one in line to the end, once it has
//!   counted. The times for which each could have counted and did count are kept, so that values
//!   can be scaled.
//! - An event of a group also counts for its descendants.
//! - A switch does not touch an event for all groups, unless pinned ones need its counter.
//!
//! On Linux the counters are the kernel's, and CPU time comes from the clock that a switch reads
//! anyway; on other systems there is only CPU time.
//!
//! If every group of a tree needs the same few events, declare them in the schema instead
//! ([`SchemaBuilder::event`](crate::SchemaBuilder::event)): then nothing is scheduled, and sums
//! over descendants come from a flush.
//!
//! # What it costs
//! A switch visits only the events of the groups that are left and entered, however many others are
//! attached; it allocates nothing. A switch to the current group is one comparison.
//!
//! Event groups of CPU time alone (`task-clock`, `cpu-clock`) need no counter, and a session does
//! not schedule them. A switch charges the time since the last one to one account, however many
//! such event groups there are and however deep the group; readers add up the accounts.
//!
//! # Differences from Linux
//! A group in both chains (a common ancestor) keeps its events on their counters; Linux takes off
//! all of a thread's group events, and those for the whole system with them.

mod session;

pub use session::{Request, RequestCounts, RequestState, Session, SessionBuilder};
pub use submeter_events::{
    EVENTS_MAX, Event, EventGroup, EventKind, NotSupportedError, ParseError, parse,
};
