//! Systems for which only the guarantees of POSIX, Windows or the standard library are used.
//!
//! The systems differ: `unix` maps memory, notices forks and has a thread clock, `windows` has a
//! thread clock, and `bare` is everything else, including Miri.

#[cfg(all(unix, not(miri)))]
#[path = "unix.rs"]
mod system;

#[cfg(all(windows, not(miri)))]
#[path = "windows.rs"]
mod system;

#[cfg(any(miri, not(any(unix, windows))))]
#[path = "bare.rs"]
mod system;

#[cfg(any(miri, not(unix)))]
pub(crate) mod heap;
#[cfg(any(miri, not(unix)))]
pub(crate) mod no_fork;

pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod perf_event;
pub(crate) mod probe;
pub(crate) mod thread;

pub(crate) use system::{fork, memory};

pub(crate) mod kernel {
    //! The system's name.

    use crate::kernel::Kernel;

    pub(crate) fn names() -> Kernel {
        let release = std::env::consts::OS.to_owned();
        Kernel { release, version: String::new(), signature: None }
    }
}

pub(crate) mod membarrier {
    //! No barrier: nothing here waits for one.

    use std::io;

    pub(crate) fn membarrier(_: i32) -> io::Result<i32> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(feature = "thread-context")]
pub(crate) mod process_context {
    //! No process context: the format is specific to Linux.

    use std::io;

    pub(crate) fn announce(_: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) mod visits {
    //! No visits: nothing here waits for one.

    use std::io;
    use std::time::Duration;

    pub(crate) fn wait(_: Option<Duration>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn prepare() {}

    pub(crate) fn waiting() -> Option<(usize, Duration)> {
        None
    }

    pub(crate) fn given_up() -> Option<u64> {
        None
    }
}
