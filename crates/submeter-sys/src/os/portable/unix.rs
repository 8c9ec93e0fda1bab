//! The services that POSIX has.

pub(crate) use crate::os::posix_clock as clock;

pub(crate) mod memory {
    //! Mappings without a file.

    use std::io;
    use std::ptr::{self, NonNull};

    const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    const KIND: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANON | LAZY;
    /// Asks not to set memory aside for what is never touched.
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    const LAZY: libc::c_int = libc::MAP_NORESERVE;
    /// Others have no such flag, and need none.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    const LAZY: libc::c_int = 0;

    /// Maps `len` bytes that may not be accessed before they are opened.
    pub(crate) fn map(len: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: 1. The mapping aliases nothing: it is new, private, and at an address of the
        // kernel's choice. 2. No file is involved: the flags say so.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, KIND, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// Lets a range be accessed: zeroes that take memory page by page.
    ///
    /// # Safety
    /// The range is inside what [`map`] gave, and begins with a page.
    pub(crate) unsafe fn open(from: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: 1. The range is inside a mapping of ours, in whole pages: the caller's promise.
        // 2. It allows more than before, so that no reference loses what it points to.
        let result = unsafe { libc::mprotect(from.as_ptr().cast(), len, ACCESS) };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// The range is what [`map`] gave for `len`, and is not used any more.
    pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: 1. The range is one whole mapping that is not used any more: the caller's
        // promise.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }

    /// Gives the memory of a range back, which reads as zero then.
    ///
    /// By a new mapping in its place: systems differ in what `madvise` leaves of the old one.
    ///
    /// # Safety
    /// The range is inside what [`map`] gave and begins with a page, and no code relies on what it
    /// holds.
    pub(crate) unsafe fn discard(from: NonNull<u8>, len: usize) -> io::Result<()> {
        let at = from.as_ptr().cast();
        // SAFETY: 1. What is replaced is ours, in whole pages: the caller's promise. 2. Others who
        // look find either mapping: where the call succeeds, the kernel replaces one by the other
        // in one step. Where it fails, see below.
        let result = unsafe { libc::mmap(at, len, ACCESS, KIND | libc::MAP_FIXED, -1, 0) };
        if result != libc::MAP_FAILED {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Refused before anything was done.
            Some(libc::EINVAL | libc::EBADF | libc::ENOTSUP) => Err(error),
            // POSIX allows a failed call to have unmapped what it was to replace. Another mapping
            // may lie there by now, so that going on would write to memory that is not ours.
            _ => std::process::abort(),
        }
    }

    pub(crate) fn page_size() -> usize {
        // SAFETY: 1. The call takes a number and touches nothing: POSIX says so.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // Known to every libc; were it not, this is a multiple of every page there is.
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
    }
}

pub(crate) mod fork {
    //! A sign that tells a child from its parent.

    use std::io;

    use crate::memory::Reservation;

    /// Refuses: the handler serves.
    pub(crate) fn wipe(_: &Reservation) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Lets the C library call `in_parent` before each of its forks, and `in_child` in the child,
    /// which may do what a signal handler may.
    pub(crate) fn note_handlers(in_parent: extern "C" fn(), in_child: extern "C" fn()) {
        // SAFETY: 1. `in_child` may run in a child of a threaded process: the caller's part. 2.
        // Both exist for as long as they may be called: a library that is unloaded takes its
        // handlers with it.
        unsafe { libc::pthread_atfork(Some(in_parent), None, Some(in_child)) };
    }
}
