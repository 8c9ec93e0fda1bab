//! Mappings without a file.

use std::io;
use std::ptr::NonNull;

/// Maps `len` bytes that may not be accessed before they are opened.
///
/// They are not opened at once, because accessible memory is committed as a whole by `mlockall`,
/// counted as a whole by strict overcommit, and dumped as a whole once a page was written.
pub(crate) fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: 1. The mapping aliases nothing: it is new, private, and at an address of the kernel's
    // choice. 2. No file is involved: the flags say so.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Huge pages would commit 2 MiB for one touched word. The advice may be refused (by a kernel
    // without THP): then there is nothing to prevent. SAFETY: 1. The range is the mapping just
    // made. 2. The advice changes no contents: madvise(2) says so.
    unsafe { libc::madvise(address, len, libc::MADV_NOHUGEPAGE) };
    if new_memory_is_locked() {
        // Otherwise memory opened later would be committed as a whole, as it is where the kernel
        // refuses this (before 4.4). SAFETY: 1. The range is the mapping just made. 2. Locking
        // changes no contents.
        unsafe { libc::syscall(libc::SYS_mlock2, address, len, libc::MLOCK_ONFAULT) };
    }
    NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Returns whether the process locks what it maps (`mlockall(MCL_FUTURE)`), that is, whether a new
/// page is resident before it is touched. No call tells, and `VmLck` in `/proc` also counts other
/// locked memory.
fn new_memory_is_locked() -> bool {
    // gVisor reports all pages as resident, even those that may not be accessed and have no memory.
    is_born_resident(libc::PROT_READ | libc::PROT_WRITE) && !is_born_resident(libc::PROT_NONE)
}

fn is_born_resident(access: libc::c_int) -> bool {
    let len = page_size();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: 1. The mapping aliases nothing: it is new, private, and at an address of the kernel's
    // choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    let mut resident = 0;
    // SAFETY: 1. The range is the page just mapped. 2. The call writes a byte for each page.
    let known = unsafe { libc::mincore(page, len, &raw mut resident) } == 0;
    // SAFETY: 1. The range is the page just mapped, which nothing uses.
    unsafe { libc::munmap(page, len) };
    known && resident & 1 != 0
}

/// Makes a range accessible: zeroes that take memory page by page.
///
/// # Safety
/// The range is inside what [`map`] returned, and begins with a page.
pub(crate) unsafe fn open(from: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: 1. The range is inside a mapping of ours, in whole pages: the caller's promise. 2. It
    // only adds permissions, so no reference loses what it points to.
    let result =
        unsafe { libc::mprotect(from.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Unmaps a mapping.
///
/// # Safety
/// The range is what [`map`] returned for `len`, and is no longer used.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: 1. The range is one whole mapping that is no longer used: the caller's promise.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

/// Gives the memory of a range back. The range then reads as zero.
///
/// # Safety
/// The range is inside what [`map`] returned and begins with a page, and no code relies on what it
/// holds.
pub(crate) unsafe fn discard(from: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: 1. The range is inside a mapping of ours, in whole pages: the caller's promise. 2. It
    // reads as zero then: the mapping is private and anonymous.
    let advise = |advice| match unsafe { libc::madvise(from.as_ptr().cast(), len, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // The second is for locked memory, which the first refuses; it exists since 5.18.
    advise(libc::MADV_DONTNEED).or_else(|_| advise(libc::MADV_DONTNEED_LOCKED))
}

pub(crate) fn page_size() -> usize {
    // SAFETY: 1. The call takes a number and touches nothing: sysconf(3) says so.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Every libc knows it; if one did not, the largest page of any Linux is a multiple of the true
    // one.
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
}
