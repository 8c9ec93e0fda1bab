//! Children of a fork.

/// The exit code of a child that was right, and did not meet what its test is named for.
const NOT_MET: i32 = 2;

/// Runs `child` in a forked child process; returns whether it returned true, within a minute.
pub(crate) fn in_a_fork(child: impl FnOnce() -> bool) -> bool {
    found_in_a_fork(|| child().then_some(true)).is_some()
}

/// Runs `child` in a forked child process, where it returns whether the fork met what the test is
/// named for, or `None` if something was wrong. Returns the same, or `None` if it panicked or did
/// not end within a minute.
pub(crate) fn found_in_a_fork(child: impl FnOnce() -> Option<bool>) -> Option<bool> {
    // SAFETY: the child runs test code in a copy of a process with other threads: it may take those
    // locks only that a fork handles, which is what is tested, and glibc's allocator, which it
    // does.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: asks for a signal that ends a child that hangs.
        unsafe { libc::alarm(60) };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        let code = match found.unwrap_or(None) {
            Some(true) => 0,
            Some(false) => NOT_MET,
            None => 1,
        };
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: `status` is live; `pid` is our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Some(true),
        (true, NOT_MET) => Some(false),
        _ => None,
    }
}
