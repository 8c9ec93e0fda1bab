//! Sampled live bytes: about how much memory each group's blocks take now, and how well that is
//! known.
//!
//! [`Sampled`] is the allocator, [`Heap`] what brings its samples to a tree.
//!
//! # What is known
//! - **Blocks of 8 KiB and more**: whose each of them is, and its size to the byte.
//! - **Smaller ones**: of each 64 KiB that are allocated, about one block. Where sample after
//!   sample falls is as random as rain, and a sample of s bytes stands for
//!   s/(1 − e^(−s/65536)) bytes, so that the sum is right on average whatever the sizes are.
//! - **How well**: the standard error of a sum is 64 KiB·√(n + 1), where n is the gauge
//!   `heap_live_samples`: the estimated variance, Σ(1 − p)·w² over the samples' chances p and
//!   weights w, is n·(64 KiB)² less a part in 700 at most, and one more is for that n is chance.
//!   So a group of 1 MiB of small blocks is known within 26 % (one standard error), of 100 MiB
//!   within 2.5 %, of 1 GiB within 0.8 %; 19 of 20 estimates and more are within 2.2 of them.
//!   [`Live::error_bytes`] computes it. It is no gauge, as samples can be summed up, over groups
//!   and over processes, and errors cannot.
//!
//! # Whose memory it is
//! A byte belongs to the group that its thread worked for when it was allocated, whichever thread
//! frees it: a small block that another group makes larger is shared by the two, on average. A
//! known block, or a sample, keeps its one owner however it grows, and one that becomes known when
//! it grows is of the group that made it so. When a group is killed, what is left of it belongs to
//! the nearest group above it that lives. What was allocated outside of all groups, in groups of
//! other trees, or before the [`Heap`] began, is nobody's and not counted.
//!
//! # What it costs
//! - **A block**: a subtraction from a word of the thread when it is allocated, and a comparison of
//!   its address when it is freed: sampled blocks lie in a range of their own.
//! - **A known block**: an entry in a map and a word of the thread, when it comes and goes.
//! - **Memory**: a sample lies in a slot of a power of two, and has a record of 8 bytes. As one of
//!   1,000 blocks of 64 bytes is sampled, and at most one of eight of any small size, that is less
//!   than 1 % of a heap of blocks below 1 KiB, and 6 % in the worst case: where all are a little
//!   over 4 KiB. Slots are never given back to the system, and used again. For known blocks two
//!   bytes for each 8 KiB.
//! - **Addresses**: 16 GiB are reserved, none of which is memory until it is used.
//! - **A switch, and a group**: as in [`exact`](crate::exact).
//!
//! # Where memory is allocated
//! With the feature `memory-probes` each sample, and each known block, is told to OpenTelemetry's
//! memory probes, `otel_memory:alloc` and `otel_memory:free`, with the bytes that it stands for: so
//! a profiler outside of the process, such as OpenTelemetry's for eBPF, draws what groups allocate
//! and hold by the stacks that asked for it, and by tenant together with submeter's
//! `thread-context`. To profilers a block that grows or shrinks is freed and allocated anew. A
//! probe is one instruction that does nothing, until somebody listens. What is allocated outside of
//! all groups has none. On Linux for x86-64 and aarch64.
//!
//! # When it is not enough
//! When what small tenants hold is to be known to the byte, or is to be limited:
//! [`exact`](crate::exact).
//!
//! # Where it is right
//! As [`Exact`](crate::Exact). A signal handler that interrupts the sampler on its own thread is
//! not sampled meanwhile. The estimates lack what a sample stands for where there is no slot for it
//! (a heap of more than 64 GiB of small blocks, or a limit on memory), and known blocks for which
//! the map finds no memory: the gauge `heap_live_lacking_bytes` of the root says how much.

mod heap;
mod large;
mod odds;
mod places;
mod probes;
mod raw;
mod samples;
mod slots;

use std::hint::black_box;

pub use crate::exact::Balance;
pub use heap::{Heap, Live};
pub use raw::Sampled;

/// Returns whether a block that is allocated here may be sampled.
pub(crate) fn is_linked() -> bool {
    places::passes(|| drop(black_box(Box::new(black_box([0_u8; 64])))))
}
