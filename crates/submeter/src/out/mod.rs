//! Copies of the whole tree, and the texts and totals made from them.

#[cfg(feature = "checkpoint")]
pub mod checkpoint;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod snapshot;
pub(crate) mod totals;
