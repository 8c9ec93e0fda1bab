//! Events that follow a group: which of them count at a moment, on counters that are too few.
//!
//! A [`Session`] counts for the groups of a tree, on all threads. Below it, each thread has a
//! scheduler. Event groups are attached to it, for one group of the tree or for all; each switch of
//! the thread to another group takes the events of the groups that are left off their counters and
//! puts those of the groups that are entered on them. The rules are perf's:
//!
//! - An event group counts as a whole or not at all.
//! - *Pinned* event groups come first, and must always count: where the group that is entered has
//!   any, every flexible one leaves before they are placed. A pinned one that finds no place is in
//!   [`RequestState::Error`] from then on.
//! - *Flexible* ones take turns: a rotation sends the one that was first in line to its end, once
//!   it has counted. How long each could have counted and how long it did is kept, so
//!   that values can be scaled.
//! - An event of a group counts for its descendants too.
//! - An event for all groups is not touched by a switch, unless pinned ones need its counter.
//!
//! Counters are the kernel's on Linux, and CPU time is read from the clock that a switch reads
//! anyway; elsewhere there is CPU time alone.
//!
//! Where each group of a tree is to have the same few events, declare them in the schema instead
//! ([`SchemaBuilder::event`](crate::SchemaBuilder::event)): then nothing is scheduled, and sums
//! over descendants come from a flush.
//!
//! # What it costs
//! A switch visits the events of the groups that are left and entered, and no others, however many
//! are attached; it allocates nothing. A switch to the current group is one comparison.
//!
//! # Differences from Linux
//! A group that is in both chains (a common ancestor) keeps its events where they are; Linux takes
//! all of a thread's group events off, and what counts for the whole system with them.

mod event;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod no_kernel;
mod parse;
mod pmu;
mod published;
mod scheduler;
mod session;
mod simulated;
mod thread;

pub use event::{Event, EventGroup, EventKind};
pub use parse::{EVENTS_MAX, ParseError, parse};
pub use pmu::NotSupportedError;
pub use session::{Request, RequestCounts, RequestState, Session, SessionBuilder};

// For the bench and the tests. Hidden, as nothing is promised about it: a minor release may change
// or remove it. Not behind a feature, which Cargo would turn on for all crates of a build together.
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub use linux::LinuxPmu;
#[doc(hidden)]
pub use pmu::{Handle, Pmu};
#[doc(hidden)]
pub use scheduler::{Counts, EventGroupId, GroupKey, Scheduler, Scope, State};
#[doc(hidden)]
pub use simulated::SimulatedPmu;
#[doc(hidden)]
pub use thread::{ClockPmu, ThreadPmu};

/// The counters of the system that this is built for.
#[cfg(target_os = "linux")]
pub(crate) use linux::LinuxPmu as KernelPmu;
#[cfg(not(target_os = "linux"))]
pub(crate) use no_kernel::NoKernelPmu as KernelPmu;
