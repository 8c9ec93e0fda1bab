//! Targets without sequences (and Miri, which has no asm): the probe refuses, so nothing here runs.

use super::SpinShared;
use crate::CpuRows;
use crate::rseq::AddOutcome;

/// Means "no signature": own registration is refused before it is used.
pub(crate) const SIGNATURE: u32 = 0;

const NEVER: &str = "no Rseq exists on this target";

/// Never commits, like [`add_while`].
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add<const BYTES: usize>(_: isize, _: u32, _: *mut i64, _: i64) -> bool {
    false
}

/// Never commits: only [`crate::Rseq::inert`] exists.
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add_while<const N: i32>(_: isize, _: *mut i64, _: *const u32) -> bool {
    false
}

/// Never commits, like [`add_while`].
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add_value_while(_: isize, _: *mut i64, _: *const u32, _: i64) -> bool {
    false
}

/// Never commits, like [`add_while`].
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add_capped(_: isize, _: *mut i64, _: *const u32, _: i64, _: u64) -> bool {
    false
}

/// See `PSEUDOCODE.md`.
///
/// # Safety
/// Never called: no [`crate::Rseq`] can be obtained here.
pub(crate) unsafe fn add_carry(_: isize, _: u32, _: *mut i64, _: i64) -> AddOutcome {
    unreachable!("{NEVER}")
}

/// See `PSEUDOCODE.md`.
///
/// # Safety
/// Never called: no [`crate::Rseq`] can be obtained here.
pub(crate) unsafe fn add_marked(
    _: isize,
    _: u32,
    _: *mut i64,
    _: i64,
    _: *const u64,
    _: u32,
) -> AddOutcome {
    unreachable!("{NEVER}")
}

/// Never commits, like [`add_while`].
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add_within(_: isize, _: u32, _: *mut i64, _: i64, _: u64) -> bool {
    false
}

/// Never commits, like [`add_while`].
///
/// # Safety
/// None needed.
#[inline(always)]
pub(crate) unsafe fn add_indexed_within<const MARKS_AT: usize>(
    _: &CpuRows,
    _: u32,
    _: i64,
    _: u64,
) -> bool {
    false
}

/// See `PSEUDOCODE.md`.
pub(crate) fn spin(_: isize, _: &SpinShared, _: u32, _: u32) -> bool {
    unreachable!("{NEVER}")
}

/// See `PSEUDOCODE.md`.
///
/// # Safety
/// Never called: no [`crate::Rseq`] can be obtained here.
pub(crate) unsafe fn read_u32(_: isize, _: usize) -> u32 {
    unreachable!("{NEVER}")
}

/// No area on this target.
#[cfg(not(submeter_plugin))]
pub(crate) fn own_area_offset() -> isize {
    0
}

/// No context on this target.
#[cfg(feature = "thread-context")]
pub(crate) fn publish_context(_: *const u8) {}

/// No probes on this target.
#[cfg(feature = "memory-probes")]
pub(crate) fn probe_alloc(_: *const u8, _: u64, _: u64) {}

/// The same as `probe_alloc`.
#[cfg(feature = "memory-probes")]
pub(crate) fn probe_free(_: *const u8) {}

/// No area on this target.
pub(crate) fn thread_pointer() -> usize {
    0
}

/// No area on this target.
#[cfg(target_feature = "crt-static")]
pub(crate) fn libc_symbols() -> (*const u32, *const isize) {
    (std::ptr::null(), std::ptr::null())
}
