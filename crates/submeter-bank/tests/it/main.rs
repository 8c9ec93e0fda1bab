//! The behaviour of the crate, seen from outside.

mod holder;
mod hostile;
mod ledger;
mod simulation;
mod skew;
mod world;
