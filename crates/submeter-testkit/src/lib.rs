//! Naive oracles that submeter is tested against, and the scripts that drive both.
//!
//! An oracle does everything in the slowest way that is plainly right: one list of groups, totals
//! by visiting all of them, recorded values kept one by one. [`Twin`] runs a script of random
//! operations on a [`submeter::Tree`] and on the [`Oracle`] and panics where they differ. It uses
//! only the public interface, so that it holds for every engine and every rung of the ladder.

#![forbid(unsafe_code)]

mod events;
mod fuzz;
mod ledger;
mod meters;
mod oracle;
mod random;
mod script;
mod soak;
mod twin;
mod visits;

pub use events::{EventOp, EventOracle, Naive, event_script, run_events};
pub use fuzz::{Fuzz, Tally};
pub use ledger::{Entry, Ledger, Totals};
pub use meters::{BUCKETS, COUNTERS, Meters, RESOURCES};
pub use oracle::{Held, Id, Limited, Oracle, Refused};
pub use random::Random;
pub use script::{Op, script};
pub use soak::{Comparison, Difference, Progress, Soak};
pub use twin::Twin;
pub use visits::{Visited, Visits, VisitsHere};

/// Compiles the README's program.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
