//! Perf events that follow groups of work, multiplexed onto a limited number of counters.
//!
//! Depend on `submeter` instead, whose module `perf` has everything that users need; this crate may
//! change with every minor release.
//!
//! A [`Scheduler`] belongs to one thread. Event groups are attached to it, for one group of work or
//! for all; when the thread switches to another group, the scheduler takes the events of the groups
//! being left off their counters, and puts those of the groups being entered on. The rules are
//! perf's:
//!
//! - An event group counts as a whole or not at all.
//! - *Pinned* event groups come first, and must always count: if an entered group has any, every
//!   flexible one is taken off before they are placed. A pinned event group that finds no counter
//!   stays in [`State::Error`].
//! - *Flexible* event groups take turns: a rotation moves the first in line to the end, once it has
//!   counted. The scheduler keeps how long each could have counted and how long it did, so that
//!   values can be scaled.
//! - An event of a group also counts for its descendants.
//! - A switch does not touch an event for all groups, unless pinned events need its counter.
//!
//! # Differences from Linux
//! A group in both chains (a common ancestor) keeps its events on their counters; Linux takes all
//! of a thread's group events off, and with them those for the whole system.

#![forbid(unsafe_code)]

mod event;
mod index;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod no_kernel;
mod parse;
mod pmu;
mod published;
mod scheduler;
mod simulated;
mod thread;

pub use event::{Event, EventGroup, EventKind};
pub use index::{GroupIndex, NONE};
/// The counters of the target's operating system.
#[cfg(target_os = "linux")]
pub use linux::LinuxPmu as KernelPmu;
/// The counters of the target's operating system.
#[cfg(not(target_os = "linux"))]
pub use no_kernel::NoKernelPmu as KernelPmu;
pub use parse::{EVENTS_MAX, ParseError, parse};
pub use pmu::{Handle, NotSupportedError, Pmu};
pub use published::{Copied, Published};
pub use scheduler::{Counts, EventGroupId, GroupKey, Scheduler, Scope, State, scale};
pub use simulated::SimulatedPmu;
pub use thread::{ClockPmu, ThreadPmu};
