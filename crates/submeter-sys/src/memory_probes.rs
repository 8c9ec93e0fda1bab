//! What an allocator samples, for profilers outside of the process: OpenTelemetry's memory probes.
//!
//! A probe is an instruction that does nothing, and a note in the program's file that says where it
//! is and which registers have its arguments: statically defined tracing, as SystemTap's
//! documentation describes it ("UserSpaceProbeImplementation", version 3). Who listens has the
//! kernel stop there. The names, and what the arguments are, is the contract of OpenTelemetry's
//! profiler (its design document 00003, memory profiling).
//!
//! On Linux for x86-64 and aarch64; elsewhere there are no probes.

use crate::arch;

/// Says that a block was sampled: where it is, how large it is, and how many bytes it stands for.
#[inline(always)]
pub fn alloc(block: *const u8, size: u64, weighted_bytes: u64) {
    arch::probe_alloc(block, size, weighted_bytes);
}

/// Says that a block which was sampled is freed.
#[inline(always)]
pub fn free(block: *const u8) {
    arch::probe_free(block);
}
