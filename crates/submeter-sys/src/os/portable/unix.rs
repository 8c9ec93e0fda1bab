//! The services of POSIX.

pub(crate) use crate::os::posix_clock as clock;

pub(crate) mod memory {
    //! Mappings without a file.

    use std::io;
    use std::ptr::{self, NonNull};

    const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    const KIND: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANON | LAZY;
    /// Asks the system not to reserve memory for pages that are never touched.
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    const LAZY: libc::c_int = libc::MAP_NORESERVE;
    /// Other systems have no such flag, and need none.
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

    /// Makes a range accessible: zeroes that take memory page by page.
    ///
    /// # Safety
    /// The range is inside what [`map`] returned, and begins with a page.
    pub(crate) unsafe fn open(from: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: 1. The range is inside a mapping of ours, in whole pages: the caller's promise.
        // 2. It only adds permissions, so no reference loses what it points to.
        let result = unsafe { libc::mprotect(from.as_ptr().cast(), len, ACCESS) };
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
    /// This puts a new mapping in its place, because systems differ in what `madvise` leaves of the
    /// old one.
    ///
    /// # Safety
    /// The range is inside what [`map`] returned and begins with a page, and no code relies on what
    /// it holds.
    pub(crate) unsafe fn discard(from: NonNull<u8>, len: usize) -> io::Result<()> {
        let at = from.as_ptr().cast();
        // SAFETY: 1. The replaced range is ours, in whole pages: the caller's promise. 2. Other
        // threads find either mapping: if the call succeeds, the kernel replaces one with the other
        // in one step. If it fails, see below.
        let result = unsafe { libc::mmap(at, len, ACCESS, KIND | libc::MAP_FIXED, -1, 0) };
        if result != libc::MAP_FAILED {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Refused before anything was done.
            Some(libc::EINVAL | libc::EBADF | libc::ENOTSUP) => Err(error),
            // POSIX allows a failed call to have unmapped what it was to replace. Another mapping
            // may be there now, so continuing could write to memory that is not ours.
            _ => std::process::abort(),
        }
    }

    pub(crate) fn page_size() -> usize {
        // SAFETY: 1. The call takes a number and touches nothing: POSIX says so.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // Every libc knows it; if one did not, this is a multiple of every existing page size.
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(1 << 16)
    }
}

pub(crate) mod fork {
    //! A sign that distinguishes a child from its parent.

    use std::io;

    use crate::memory::Reservation;

    /// Refuses: the handler is used instead.
    pub(crate) fn wipe(_: &Reservation) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Lets the C library call `in_parent` before each of its forks, and `in_child` in the child,
    /// which may do what a signal handler may.
    pub(crate) fn note_handlers(in_parent: Option<extern "C" fn()>, in_child: extern "C" fn()) {
        let in_parent = in_parent.map(|handler| handler as unsafe extern "C" fn());
        // SAFETY: 1. `in_child` may run in a child of a threaded process: the caller's part. 2.
        // Both exist for as long as they may be called: a library that is unloaded takes its
        // handlers with it.
        unsafe { libc::pthread_atfork(in_parent, None, Some(in_child)) };
    }
}
