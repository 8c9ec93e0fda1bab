//! A sign that distinguishes a child from its parent.

use std::io;

use crate::memory::Reservation;

/// Makes the kernel wipe `page` in each child, however the child is created.
pub(crate) fn wipe(page: &Reservation) -> io::Result<()> {
    // SAFETY: 1. The range is a mapping: `page` keeps it. 2. Its contents stay in this process:
    // madvise(2) says so.
    let result =
        unsafe { libc::madvise(page.base().as_ptr().cast(), page.len(), libc::MADV_WIPEONFORK) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the C library call `in_parent` before each of its forks, and `in_child` in the child, which
/// may do what a signal handler may.
pub(crate) fn note_handlers(in_parent: Option<extern "C" fn()>, in_child: extern "C" fn()) {
    let in_parent = in_parent.map(|handler| handler as unsafe extern "C" fn());
    // SAFETY: 1. `in_child` may run in a child of a threaded process: the caller's part. 2. Both
    // exist for as long as they may be called: a library that is unloaded takes its handlers with
    // it.
    unsafe { libc::pthread_atfork(in_parent, None, Some(in_child)) };
}
