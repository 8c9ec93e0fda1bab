//! Who reads: copies of the whole tree, and what is made of them.

#[cfg(feature = "checkpoint")]
pub mod checkpoint;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod snapshot;
pub(crate) mod totals;
