//! Per-CPU storage, counters and reference counts.
//!
//! Users depend on the `submeter` crate, which re-exports what is here.
//!
//! | module | what it is |
//! |---|---|
//! | [`storage`] | words that every CPU has its own copy of, in one reserved range of addresses |
//! | [`marks`] | which lines of that storage changed: what makes a flush cost what changed |
//! | [`mark_set`] | the same for state that is not words |
//! | [`counter`] | one number, added to by every CPU, read approximately or exactly, or kept below a limit |
//! | [`latest`] | words that one thread writes and any thread reads, all of one moment |
//! | [`percpu_ref`] | reference counts that cost a plain add until they are killed |
//! | [`rcuref`] | reference counts for what is looked up: unconditional to take, freed after a grace period |
//!
//! `unsafe` lives in the files called `raw.rs` and in `backend/`; everything else is the safe face.

// Under a checker only the models use them: their faces need storage, which none of them can run.
// These three have models for loom only.
#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
pub mod counter;
#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
pub mod latest;
#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
pub mod mark_set;
pub mod marks;
#[cfg(any(test, not(any(loom, shuttle))))]
pub mod percpu_ref;
pub mod rcuref;

#[cfg(not(any(loom, shuttle)))]
pub mod storage;

#[cfg(not(any(loom, shuttle)))]
mod backend;
#[cfg(any(all(test, loom), not(any(loom, shuttle))))]
mod carry;
#[cfg(all(test, loom))]
mod models;
mod sync;

#[cfg(not(any(loom, shuttle)))]
pub use counter::{Approximate, LimitedCounter, OverLimit, PercpuCounter};
#[cfg(not(any(loom, shuttle)))]
pub use latest::Latest;
#[cfg(not(any(loom, shuttle)))]
pub use mark_set::MarkSet;
#[cfg(not(any(loom, shuttle)))]
pub use percpu_ref::{PercpuArc, PercpuOwner, PercpuRef};
#[cfg(not(any(loom, shuttle)))]
pub use storage::{Area, Block, Word};
