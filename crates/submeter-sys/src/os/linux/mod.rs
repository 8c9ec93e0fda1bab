//! All of Linux's services.

pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod fork;
pub(crate) mod kernel;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod perf_event;
pub(crate) mod probe;
#[cfg(feature = "thread-context")]
pub(crate) mod process_context;
pub(crate) mod thread;
pub(crate) mod visits;

mod own_registration;
mod pin;
mod selftest;
