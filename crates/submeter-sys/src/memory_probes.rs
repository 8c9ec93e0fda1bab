//! OpenTelemetry's memory probes, by which an allocator reports its samples to profilers outside
//! the process.
//!
//! A probe is an instruction that does nothing, and a note in the program's file that says where it
//! is and which registers hold its arguments: statically defined tracing, as SystemTap's
//! documentation describes it ("UserSpaceProbeImplementation", version 3). A listener makes the
//! kernel stop there. The names and the arguments are the contract of OpenTelemetry's profiler (its
//! design document 00003, memory profiling).
//!
//! Available on Linux for x86-64 and aarch64; elsewhere there are no probes.

use crate::arch;

/// Tells listeners about a sampled block: its address, its size and the bytes that it stands for.
#[inline(always)]
pub fn alloc(block: *const u8, size: u64, weighted_bytes: u64) {
    arch::probe_alloc(block, size, weighted_bytes);
}

/// Tells listeners that a sampled block is freed.
#[inline(always)]
pub fn free(block: *const u8) {
    arch::probe_free(block);
}
