//! Sampled live bytes: roughly how much memory each group's blocks take now, and how well that is
//! known.
//!
//! [`Sampled`] is the allocator; [`Heap`] transfers its samples to a tree.
//!
//! # What is known
//! - **Blocks of 8 KiB and more**, and smaller ones that are aligned to 8 KiB or more: each one's
//!   owner, and its size to the byte.
//! - **Smaller blocks**: about one block in each 64 KiB allocated. Samples fall as randomly as
//!   rain, and a sample of s bytes stands for s/(1 − e^(−s/65536)) bytes, so the sum is right on
//!   average whatever the sizes are.
//! - **How well**: the standard error of a sum is 64 KiB·√(n + 1), where n is the gauge
//!   `heap_live_samples`: the estimated variance, Σ(1 − p)·w² over the samples' chances p and
//!   weights w, is n·(64 KiB)² less one part in 700 at most, and the added one accounts for n
//!   itself being random. A group of 1 MiB of small blocks is therefore known within 26 % (one
//!   standard error), of 100 MiB within 2.5 %, of 1 GiB within 0.8 %. At least 19 of 20 estimates
//!   are within three standard errors, whatever a group holds. (Of groups of just over 192 KiB of
//!   small blocks, one in 20 has no sample; of those of many MiB, 997 of 1,000 are within three.)
//!   [`Live::error_bytes`] computes it. It is not a gauge, because
//!   samples can be summed over groups and processes, and errors cannot.
//!
//! # Whose memory it is
//! A byte belongs to the group that its thread worked for when it was allocated, whichever thread
//! frees it: a small block that another group makes larger is shared by the two, on average. A
//! known block or a sample keeps its one owner however it grows, and a block that becomes known by
//! growing belongs to the group that grew it. When a group is killed, its remaining memory belongs
//! to the nearest living group above it. Blocks allocated outside all groups, in groups of other
//! trees, or before the [`Heap`] was started have no owner and are not counted.
//!
//! # What it costs
//! - **A block**: a subtraction from a word of the thread when it is allocated, and a comparison of
//!   its address when it is freed: sampled blocks lie in a range of their own.
//! - **A known block**: an entry in a map and a word of the thread, when it is allocated and when
//!   it is freed.
//! - **Memory**: a sample lies in a slot of a power of two, and has a record of 8 bytes. One in
//!   1,000 blocks of 64 bytes is sampled, and at most one in eight of any small size. That is less
//!   than 1 % of a heap of blocks below 1 KiB, and 6 % in the worst case, where all blocks are a
//!   little over 4 KiB. Slots are reused, but never given back to the system. Known blocks take two
//!   bytes for each 8 KiB.
//! - **Address space**: 16 GiB are reserved, which take no memory until used.
//! - **A switch, and a group**: as in [`exact`](crate::exact).
//!
//! # Where memory is allocated
//! With the feature `memory-probes` each sample and each known block fires OpenTelemetry's memory
//! probes, `otel_memory:alloc` and `otel_memory:free`, with the bytes that it stands for. A
//! profiler outside the process, such as OpenTelemetry's eBPF profiler, can then show what groups
//! allocate and hold by the stacks that asked for it, and by tenant if combined with submeter's
//! `thread-context`. To profilers, a block that grows or shrinks is freed and allocated again. A
//! probe is one instruction that does nothing unless a profiler listens. Blocks allocated outside
//! all groups fire none. Available on Linux for x86-64 and aarch64.
//!
//! # When it is not enough
//! When what small tenants hold must be known to the byte, or limited: use [`exact`](crate::exact).
//!
//! # Where it is safe to use
//! The same as [`Exact`](crate::Exact); a thread's first sample also asks the kernel for the time
//! and the process's id. A signal handler that interrupts the sampler on its own thread is not
//! sampled. A child of `fork` samples for itself, so that the errors of forked workers are
//! independent; one of a bare `clone` has its parent's next samples.
//!
//! The estimates lack what a sample stands for if there is no slot for it (a heap of more than 64
//! GiB of small blocks, or a limit on memory), and known blocks for which the map finds no memory:
//! the counter `heap_lacking_bytes` of the root says how much that was, freed or not.

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

/// Returns whether a block allocated here may be sampled.
pub(crate) fn is_linked() -> bool {
    places::passes(|| drop(black_box(Box::new(black_box([0_u8; 64])))))
}
