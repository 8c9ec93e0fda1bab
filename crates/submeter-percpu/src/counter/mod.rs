//! One number that every CPU adds to.
//!
//! | type | purpose | cost of an add |
//! |---|---|---|
//! | [`PercpuCounter`] | counting, with bounded or exact reads at any time | about a plain add |
//! | [`LimitedCounter`] | amounts that must never exceed a limit | about a plain add |
//!
//! They are two types because a limit cannot hold if the same number also takes plain adds.

mod approximate;
pub(crate) mod cpu_words;
mod overflows;
mod setter;

#[cfg(all(test, loom))]
mod in_flight_models;
#[cfg(not(loom))]
mod limited;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(not(loom))]
mod percpu;

pub use approximate::Approximate;
#[cfg(not(loom))]
pub use limited::{LimitedCounter, OverLimitError};
#[cfg(not(loom))]
pub use percpu::PercpuCounter;
pub use setter::Setter;

/// The default batch of a counter: Linux's `percpu_counter_batch` at its smallest.
pub const BATCH_DEFAULT: u64 = 32;

/// With the maximum number of rows in an area (8,192 CPUs and 64), the width of a read still fits
/// an `i64`.
#[cfg(not(loom))]
const BATCH_MAX: u64 = 1 << 48;

/// Returns the mask of a batch.
#[cfg(not(loom))]
fn mask_of(batch: u64) -> u64 {
    assert!(batch.is_power_of_two(), "a batch is a power of two");
    assert!(batch <= BATCH_MAX, "a batch is at most 2^48");
    batch - 1
}
