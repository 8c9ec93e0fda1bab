//! The system call.

use std::io;

/// Issues `command` and returns what the kernel answers.
pub(crate) fn membarrier(command: i32) -> io::Result<i32> {
    // SAFETY: 1. The call takes three integers and touches no memory of ours: membarrier(2) says
    // so.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
