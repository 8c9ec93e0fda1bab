#![doc = include_str!("../README.md")]
//!
//! # What the counts mean
//! - **Whose**: a block counts as allocated in the group that its thread works for at that moment,
//!   and as freed in the group that frees it, which may be another one. So these are rates of work:
//!   who allocates much, and who keeps the allocator busy. Allocated less freed is what a group
//!   holds only where its blocks are freed in it as well.
//! - **How much**: the sizes that the program asked for, not what the allocator rounds them up to.
//!   A block that grows or shrinks counts as freed with its old size and allocated with its new
//!   one, wherever it lies then. What is refused does not count, but for a block of less than 4 KiB
//!   that there is no memory for: most programs end with it.
//! - **When**: a thread's counts are charged when it leaves its group, enters another or
//!   [parks](submeter::switch::park), and are exact then. What a thread that is in a group has
//!   allocated since is charged at its next switch, as CPU time is.
//! - **Nobody's**: what threads do outside of all groups, or after the end of their thread-local
//!   values.
//! - **Not seen**: what C code allocates by itself, what `mmap` maps, stacks.
//!
//! # What it costs
//! Two additions to words of the thread for each block allocated or freed, with or without a tree,
//! and 32 bytes for each thread. At each switch of groups of a tree that declares [`Volume`], a
//! call, and an update for each count that has risen. Trees that declare none pay nothing.
//!
//! # Where it is right
//! The wrapper adds to plain thread-local words that have no destructor, before or after it calls
//! the allocator. It never allocates, locks, logs, fails or panics, so that it may run wherever the
//! allocator itself may: before `main`, in the destructors of thread-local values, when a thread
//! ends, in a forked child, in the group of a tenant that was killed. A signal handler that
//! allocates (if the allocator permits it) is counted; where it interrupts the allocator itself,
//! its own count may be lost, and never that of its thread.
//!
//! It needs a target that has thread-local words of its own: all of Linux, macOS and Windows do.
//!
//! # When not to use it
//! With jemalloc, whose threads count for themselves: implement
//! [`ThreadMeter`](submeter::switch::ThreadMeter) by what `thread.allocatedp` and
//! `thread.deallocatedp` point to, and declare its counters by
//! [`thread_count`](submeter::SchemaBuilder::thread_count). Then nothing is added to a block.

mod chosen;
mod counts;
pub mod exact;
mod live;
mod map;
mod raw;
pub mod sampled;
mod volume;

pub use chosen::Chosen;
pub use counts::{Counts, thread_counts};
pub use exact::Exact;
pub use live::{Live, StartError};
pub use raw::Metered;
pub use sampled::Sampled;
pub use volume::{Volume, is_linked};
