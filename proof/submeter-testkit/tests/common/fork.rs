//! Children of a fork.

/// Runs `child` in a forked child process; returns whether it returned true, within a minute.
pub(crate) fn in_a_fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs test code in a copy of a process with other threads: it may take those
    // locks only that a fork handles, which is what is tested, and glibc's allocator, which it
    // does.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: asks for a signal that ends a child that hangs.
        unsafe { libc::alarm(60) };
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!passed.unwrap_or(false))) };
    }
    let mut status = -1;
    // SAFETY: `status` is live; `pid` is our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}
