//! A sign that tells a child from its parent.

use std::io;

use crate::memory::Reservation;

/// Lets the kernel wipe `page` in each child, however it is made.
pub(crate) fn wipe(page: &Reservation) -> io::Result<()> {
    // SAFETY: 1. The range is a mapping: `page` keeps it. 2. Its contents stay in this process:
    // madvise(2) says so.
    let result =
        unsafe { libc::madvise(page.base().as_ptr().cast(), page.len(), libc::MADV_WIPEONFORK) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the C library call `in_child` in each child of its `fork`. `in_child` may do what a signal
/// handler may.
pub(crate) fn note_handler(in_child: extern "C" fn()) {
    // SAFETY: 1. The handler may run in a child of a threaded process: its caller's part. 2. It is
    // there as long as it may be called: a library that is unloaded takes its handlers with it.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}
