//! The calls that report samples to profilers outside the process.
//!
//! Empty without the feature `memory-probes`.

#[cfg(feature = "memory-probes")]
use submeter_sys::memory_probes;

/// Reports a block that is sampled or known from now on.
#[inline(always)]
pub(super) fn begins(block: *mut u8, size: usize, weight: u64) {
    #[cfg(feature = "memory-probes")]
    memory_probes::alloc(block, size as u64, weight);
    #[cfg(not(feature = "memory-probes"))]
    let _ = (block, size, weight);
}

/// Reports that it no longer is. Called before its place can belong to another block.
#[inline(always)]
pub(super) fn ends(block: *mut u8) {
    #[cfg(feature = "memory-probes")]
    memory_probes::free(block);
    #[cfg(not(feature = "memory-probes"))]
    let _ = block;
}
