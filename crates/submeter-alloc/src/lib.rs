#![doc = include_str!("../README.md")]
//!
//! # What the counts mean
//! - **Whose**: a block counts as allocated in the group that its thread works for at that moment,
//!   and as freed in the group that frees it, which may be another one. The counts are therefore
//!   rates of work: who allocates much, and who keeps the allocator busy. Allocated minus freed is
//!   what a group holds only if the group also frees its own blocks.
//! - **How much**: the sizes that the program asked for, not what the allocator rounds them up to.
//!   A block that grows or shrinks counts as freed with its old size and allocated with its new
//!   one, whether or not it moves. A refused allocation does not count, except one of less than 4
//!   KiB for which there is no memory: most programs end there.
//! - **When**: a thread's counts are charged when it leaves its group, enters another or
//!   [parks](submeter::switch::park), and are exact then. What a thread in a group has allocated
//!   since is charged at its next switch, as CPU time is.
//! - **Not charged**: what threads do outside all groups, or after their thread-local values are
//!   gone.
//! - **Not seen**: what C code allocates on its own, what `mmap` maps, stacks.
//!
//! # What it costs
//! Each block allocated or freed costs two additions to the thread's words, with or without a tree,
//! and each thread takes 32 bytes. Each switch between groups of a tree that declares [`Volume`]
//! costs a call, and an update for each count that has risen. Trees that do not declare it pay
//! nothing.
//!
//! # Where it is safe to use
//! The wrapper adds to plain thread-local words that have no destructor, before or after it calls
//! the allocator. It never allocates, locks, logs, fails or panics, so it may run wherever the
//! allocator itself may: before `main`, in the destructors of thread-local values, when a thread
//! ends, in a forked child, in the group of a killed tenant. A signal handler that allocates (if
//! the allocator permits it) is counted; where it interrupts the allocator itself, its own count
//! may be lost, but never its thread's.
//!
//! The target needs native thread-local storage: Linux, macOS and Windows have it.
//!
//! # When not to use it
//! With jemalloc, whose threads keep counts themselves. [The guide] shows the lines that charge
//! those to groups; blocks then cost nothing extra.
//!
//! [The guide]: submeter::guide::heap

mod chosen;
mod counts;
pub mod exact;
#[cfg(feature = "allocator-api2")]
mod group_alloc;
mod live;
mod map;
mod raw;
pub mod sampled;
mod volume;

pub use chosen::Chosen;
pub use counts::{Counts, thread_counts};
pub use exact::Exact;
#[cfg(feature = "allocator-api2")]
pub use group_alloc::GroupAlloc;
pub use live::{Live, StartError};
pub use raw::Metered;
pub use sampled::Sampled;
pub use volume::{Volume, is_linked};
