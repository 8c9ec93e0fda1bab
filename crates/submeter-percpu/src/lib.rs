//! Per-CPU storage, counters and reference counts.
//!
//! Depend on the `submeter` crate instead: it re-exports what users need.
//!
//! - [`storage`]: words of which every CPU has its own copy, in one reserved range of addresses.
//! - [`dirty`]: which lines of that storage changed, so that the cost of a flush depends on what
//!   changed only.
//! - [`dirty_set`]: the same for state that is not in words.
//! - [`pending`]: sums of what was added since a collection began; no collection resets them.
//! - [`counter`]: one number, added to by every CPU, read approximately or exactly, or kept below
//!   a limit.
//! - [`TokenBucket`]: a rate limit with a burst.
//! - [`held`]: what was gained less what was lost, each a sum over CPUs.
//! - [`seq_latch`]: words that one thread writes and any thread reads as a consistent snapshot.
//! - [`percpu_ref`]: reference counts that cost a plain add until they are killed.
//! - [`rcuref`]: reference counts for objects found by lookup: a get is unconditional, memory is
//!   freed after a grace period.
//! - [`slots`]: a limit on how many may be inside at once, and the queue of waiters.
//! - [`free_list`]: a lock-free list of unused numbers.
//! - [`process_lock`]: locks that detect that a fork left their holder behind.
//! - [`wakers`]: the waiters for one event, each in its own process.
//! - [`contain`]: calls into code of others, whose panics stay there.
//! - [`misuse`]: reports of misuse that the reference counts detected and contained.
//!
//! `unsafe` lives in the files called `raw.rs` and in `backend/`; everything else is the safe
//! interface.

// Under loom only the models use these: their interfaces need storage, which loom cannot run.
#[cfg(any(test, not(loom)))]
pub mod contain;
#[cfg(any(test, not(loom)))]
pub mod counter;
pub mod dirty;
#[cfg(any(test, not(loom)))]
pub mod dirty_set;
#[cfg(any(test, not(loom)))]
mod fork_lock;
#[cfg(any(test, not(loom)))]
pub mod free_list;
#[cfg(any(test, not(loom)))]
pub mod held;
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
#[cfg(not(loom))]
pub mod clock;
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
pub use storage::{Area, Block};
