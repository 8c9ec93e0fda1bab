//! Charges below limits, from stock that each CPU keeps at hand.
//!
//! # Stock
//! A limit is compared with the amount *held*: charges that were not released, and stock. Each
//! CPU's stock is a word that only its own sequences change, between 0 and a cap. A charge takes
//! from it and a release puts back, in one sequence that also tests a gate.
//!
//! - *Invariant*: `held` is never below the amount charged, and never raised above the limit.
//! - A charge that finds too little **refills**: it raises `held` by its own amount and a batch,
//!   and puts the batch into its CPU's word. A release that finds no room takes some stock with it
//!   and lowers `held`.
//! - A charge for which there is no room **folds**: it closes the gate, issues one barrier, and
//!   gives all stock back. After the barrier every sequence has either committed and is visible, or
//!   restarts and finds the gate closed. Then `held` is the amount charged, each charge and release
//!   changes `held` itself, and a refusal is exact.
//! - Words keep the amounts that they held when the gate was closed: a sequence's plain store would
//!   undo the stores of other threads. So the gate **opens** only after `held` was raised by their
//!   sum. It opens where there is room for twice all stock, and not within `REST_MS` of the last
//!   fold.
//!
//! Stock moves with the lock of its leaf held, so that a fold waits for a refill under way.
//! Otherwise an amount that is reserved but not yet in its word would make a refusal inexact. The
//! lock is not held across the barrier, so that a fork hardly ever copies it held. The next thread
//! that finds a leaf half closed closes it. A signal handler that interrupted the lock's holder
//! does not wait for it.
//!
//! There is one engine, `tree`: a `node` has others above and below it, and a counter is a tree of
//! one node, `flat`.

/// The words observed by models and tests.
mod words {
    #[cfg(all(test, not(any(loom, miri))))]
    pub(super) use super::stepped::{AtomicU32, AtomicU64};
    #[cfg(any(not(test), loom, miri))]
    pub(super) use crate::sync::atomic::{AtomicU32, AtomicU64};
}

mod common;
#[cfg(all(test, loom))]
mod cpus_loom;
mod flat;
#[cfg(all(test, loom))]
mod flat_loom;
mod fold;
mod inside;
mod leaf;
mod level;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod node_beyond;
#[cfg(not(loom))]
mod node_pressure;
#[cfg(not(loom))]
mod node_usage;
#[cfg(not(loom))]
mod node_wait;
mod path;
#[cfg(not(loom))]
mod pressure;
#[cfg(not(loom))]
mod rows;
// Not under Miri: one thread and no unsafe code, and it takes minutes there.
#[cfg(all(test, not(any(loom, miri))))]
mod stepped;
mod stock;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
#[cfg(all(test, loom))]
mod tree_loom;
#[cfg(all(test, not(any(loom, miri))))]
mod tree_steps;
mod wait;

#[cfg(not(loom))]
pub(crate) use flat::Flat;
pub use level::{Cause, LimitMode};
#[cfg(not(loom))]
pub use node::{LimitNode, LimitUsage, Refused};
#[cfg(not(loom))]
pub use node_wait::LimitTurn;
#[cfg(not(loom))]
pub use pressure::{Pressure, Stall};
#[cfg(not(loom))]
pub(crate) use rows::StockRows;

use inside::Inside;
