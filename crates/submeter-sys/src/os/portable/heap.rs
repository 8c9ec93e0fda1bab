//! Memory from the system's allocator, where mappings are not available.
//!
//! Not from the program's own, which may be what asks. On Windows the system's takes ranges of this
//! size directly from the kernel: all of the range counts as committed, and a page takes memory
//! when it is first touched.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::ptr::NonNull;

/// The alignment of the range. It has no other meaning: no page is given back here.
const PAGE: usize = 4096;

pub(crate) fn map(len: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(len, PAGE).ok().filter(|layout| layout.size() != 0);
    let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: 1. The layout has a size: checked above.
    let base = unsafe { System.alloc_zeroed(layout) };
    NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Does nothing: the range is open from the start.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn open(_: NonNull<u8>, _: usize) -> io::Result<()> {
    Ok(())
}

/// Frees a range.
///
/// # Safety
/// The range is what [`map`] returned for `len`, and is no longer used.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: 1. `map` made a layout from the same numbers: the caller's promise.
    let layout = unsafe { Layout::from_size_align_unchecked(len, PAGE) };
    // SAFETY: 1. The range is one whole allocation of that layout, which is no longer used: the
    // caller's promise.
    unsafe { System.dealloc(base.as_ptr(), layout) };
}

/// Refuses: memory that is given back must read as zero at once, for threads that read it during
/// the call.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn discard(_: NonNull<u8>, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn page_size() -> usize {
    PAGE
}
