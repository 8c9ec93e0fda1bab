//! Per-CPU storage, counters and reference counts.
//!
//! Users depend on the `submeter` crate, which re-exports what is here.
//!
//! - [`storage`]: words that every CPU has its own copy of, in one reserved range of addresses.
//! - [`dirty`]: which lines of that storage changed, so that a flush costs what changed.
//! - [`dirty_set`]: the same for state that is not words.
//! - [`pending`]: sums of what was added since a collection began, which none has to reset.
//! - [`counter`]: one number, added to by every CPU, read approximately or exactly, or kept below
//!   a limit.
//! - [`TokenBucket`]: how much may be taken per time.
//! - [`seq_latch`]: words that one thread writes and any thread reads, all of one moment.
//! - [`percpu_ref`]: reference counts that cost a plain add until they are killed.
//! - [`rcuref`]: reference counts for what is looked up: unconditional to take, freed after a grace
//!   period.
//! - [`slots`]: how many may be inside at once, and the line of those that wait.
//! - [`free_list`]: numbers that are free, without a lock.
//! - [`fork_lock`]: a lock that is taken from a holder that stayed behind at a fork.
//! - [`process_lock`]: locks that notice when their holder stayed behind at a fork.
//! - [`wakers`]: those that wait for one event, each in its own process.
//! - [`misuse`]: reports of misuse that the reference counts contained.
//!
//! `unsafe` lives in the files called `raw.rs` and in `backend/`; everything else is the safe face.

// Under loom only the models use these: their faces need storage, which loom cannot run.
#[cfg(any(test, not(loom)))]
pub mod counter;
pub mod dirty;
#[cfg(any(test, not(loom)))]
pub mod dirty_set;
#[cfg(any(test, not(loom)))]
pub mod fork_lock;
#[cfg(any(test, not(loom)))]
pub mod free_list;
pub mod misuse;
pub mod pending;
#[cfg(any(test, not(loom)))]
pub mod percpu_ref;
#[cfg(not(loom))]
pub mod process_lock;
#[cfg(any(test, not(loom)))]
mod rates;
pub mod rcuref;
#[cfg(any(test, not(loom)))]
pub mod seq_latch;
#[cfg(any(test, not(loom)))]
pub mod slots;

#[cfg(not(loom))]
pub mod storage;

#[cfg(not(loom))]
mod backend;
#[cfg(any(test, not(loom)))]
mod limits;
#[cfg(all(test, loom))]
mod models;
#[cfg(any(test, not(loom)))]
mod overflow;
#[cfg(all(test, not(loom)))]
#[path = "../tests/it/stop.rs"]
mod stop;
mod sync;
#[cfg(not(loom))]
mod uptime;
#[cfg(any(test, not(loom)))]
pub mod wake;
#[cfg(any(test, not(loom)))]
pub mod wakers;
#[cfg(all(test, not(loom)))]
#[path = "../tests/it/witness.rs"]
mod witness;

#[cfg(not(loom))]
pub use counter::{Approximate, LimitedCounter, OverLimitError, PercpuCounter};
#[cfg(not(loom))]
pub use dirty_set::DirtySet;
#[cfg(any(test, not(loom)))]
pub use limits::{Cause, LimitMode};
#[cfg(not(loom))]
pub use limits::{LimitNode, LimitTurn, LimitUsage, Pressure, Refused, Stall};
#[cfg(not(loom))]
pub use percpu_ref::{PercpuArc, PercpuOwner, PercpuRef};
#[cfg(not(loom))]
pub use rates::{
    InvalidRateError, InvalidWeightError, Rate, TestClock, Throttled, TokenBucket, WEIGHTS,
};
#[cfg(not(loom))]
pub use seq_latch::SeqLatch;
#[cfg(not(loom))]
pub use storage::{Area, Block, Word};
