//! The calls that tell profilers outside of the process of samples.
//!
//! Nothing without the feature `memory-probes`.

#[cfg(feature = "memory-probes")]
use submeter_sys::memory_probes;

/// Tells of a block that is sampled or known from now on.
#[inline(always)]
pub(super) fn begins(block: *mut u8, size: usize, weight: u64) {
    #[cfg(feature = "memory-probes")]
    memory_probes::alloc(block, size as u64, weight);
    #[cfg(not(feature = "memory-probes"))]
    let _ = (block, size, weight);
}

/// Tells that it no longer is: before its place may be another block's.
#[inline(always)]
pub(super) fn ends(block: *mut u8) {
    #[cfg(feature = "memory-probes")]
    memory_probes::free(block);
    #[cfg(not(feature = "memory-probes"))]
    let _ = block;
}
