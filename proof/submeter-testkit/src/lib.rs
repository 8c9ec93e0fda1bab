//! A naive oracle that submeter is tested against, and the operations that drive both.
//!
//! The [`Oracle`] does everything in the obviously correct way: each update is written into a group
//! and all of its ancestors. An [`Op`] is one operation on a tree, drawn for a short script that
//! shrinks ([`script`]), for a stream of millions, or for threads. [`Differential`] applies scripts
//! and streams to a [`submeter::Tree`] and to the oracle and panics where they differ; [`Soak`]
//! lets threads update one tree together and passes their notes to the oracle afterwards;
//! [`LimitSoak`] makes threads charge where limits are always reached. All use only the public
//! interface, so that they apply to every backend.
//!
//! The event scheduler, which is not a tree, has an oracle of its own, [`EventOracle`].

#![forbid(unsafe_code)]

mod differential;
mod events;
mod limit_soak;
mod op;
mod oracle;
mod schema;
mod soak;
mod update;
mod visits;

pub use differential::{Differential, Tally};
pub use events::{EventOp, EventOracle, Naive, event_script, run_events};
pub use limit_soak::{LimitSoak, LimitTally};
pub use op::{Op, Source, script};
pub use oracle::{Entry, Id, Limited, Oracle, Refused};
pub use schema::{BUCKETS, COUNTERS, Held, QUOTAS, Sums, TestSchema, Totals};
pub use soak::{Comparison, Difference, Progress, Soak};
pub use update::{Handle, Update};
pub use visits::{Visited, Visits, VisitsHere};

/// Compiles the README's program.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// Compiles the program in the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../../../crates/submeter/README.md")]
pub struct CrateReadme;
