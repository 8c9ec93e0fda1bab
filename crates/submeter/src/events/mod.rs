//! Events that the kernel counts, by name, and the counters of a thread.

pub(crate) mod event;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(not(target_os = "linux"))]
mod no_kernel;
pub(crate) mod pmu;

/// The counters of the target's operating system.
#[cfg(target_os = "linux")]
pub(crate) use linux::LinuxPmu as KernelPmu;
#[cfg(not(target_os = "linux"))]
pub(crate) use no_kernel::NoKernelPmu as KernelPmu;
