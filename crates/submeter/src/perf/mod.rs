//! Events that follow a group: which of them count at a moment, on counters that are too few.
//!
//! A [`Session`] counts for the groups of a tree, on all threads, and is what most programs want. Below it, each
//! thread has a [`Scheduler`]. Event groups are attached to it, for one group of the tree or for all; each switch
//! of the thread to another group takes the events of the groups that are left off their counters and puts those
//! of the groups that are entered on them. The rules are perf's:
//!
//! - An event group counts as a whole or not at all.
//! - *Pinned* event groups come first, and must always count: where the group that is entered has any, every
//!   flexible one leaves before they are placed. A pinned one that finds no place is in [`State::Error`] from then on.
//! - *Flexible* ones take turns: [`Scheduler::rotate`] sends the one that was first in line to its end, once
//!   it has counted. How long each could have counted and how long it did is kept, so that values can be scaled.
//! - An event of a group counts for its descendants too.
//! - An event for all groups is not touched by a switch, unless pinned ones need its counter.
//!
//! Counters come from a [`Pmu`]: a thread's on Linux ([`ThreadPmu`], which is [`ClockPmu`] for CPU time and
//! [`LinuxPmu`] for the rest), or simulated ones ([`SimulatedPmu`]).
//!
//! ```
//! use submeter::perf::{GroupKey, Scheduler, Scope, SimulatedPmu, parse};
//!
//! let mut events = Scheduler::new(SimulatedPmu::new(2));
//! let [cycles] = &parse("{cycles,instructions}")?[..] else { panic!("one event group") };
//! let web = GroupKey(1);
//! let id = events.attach(Scope::Group(web), cycles, 0)?;
//!
//! events.switch(&[web], 10);
//! events.pmu_mut().count(cycles.events()[0].kind(), 500);
//! events.switch(&[], 30);
//! let counts = events.counts(id, 30).expect("attached");
//! assert_eq!((counts.values[0], counts.running_ns), (500, 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where each group of a tree is to have the same few events, declare them in the schema instead
//! ([`SchemaBuilder::event`](crate::SchemaBuilder::event)): then nothing is scheduled, and sums over descendants come
//! from a flush.
//!
//! # What it costs
//! A switch visits the events of the groups that are left and entered, and no others, however many are
//! attached; it allocates nothing. A switch to the current group is one comparison.
//!
//! # Differences from Linux
//! A group that is in both chains (a common ancestor) keeps its events where they are; Linux takes all of a
//! thread's group events off, and what counts for the whole system with them.

mod clock;
mod event;
mod linux;
mod parse;
mod pmu;
mod published;
mod scheduler;
mod session;
mod simulated;
mod thread;

pub use clock::ClockPmu;
pub use event::{Event, EventGroup, EventKind};
pub use linux::LinuxPmu;
pub use parse::{EVENTS_MAX, ParseError, parse};
pub use pmu::{Handle, NotSupported, Pmu};
pub use scheduler::{Counts, EventGroupId, GroupKey, Scheduler, Scope, State};
pub use session::{Request, RequestCounts, RequestState, Session, SessionBuilder};
pub use simulated::SimulatedPmu;
pub use thread::ThreadPmu;
