//! The services of the operating system, behind one interface.
//!
//! There are two halves with the same modules and functions. `linux` uses everything that the
//! kernel offers: sequences, `membarrier`, perf events, a page that every fork wipes. `portable`
//! needs little more than the standard library: updates are locked adds by thread, and CPU time is
//! a system call each time. macOS, Windows and all other systems use it, and so does Miri.
//!
//! `--cfg submeter_portable` builds the portable half on Linux, so that its tests run where the
//! rest is developed.

#[cfg(all(target_os = "linux", not(any(miri, submeter_portable))))]
mod linux;
#[cfg(all(target_os = "linux", not(any(miri, submeter_portable))))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(any(miri, submeter_portable)))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(any(miri, submeter_portable)))))]
pub(crate) use portable::*;

#[cfg(all(unix, not(miri)))]
pub(crate) mod posix_clock;
