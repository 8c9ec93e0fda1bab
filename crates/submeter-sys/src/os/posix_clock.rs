//! POSIX clocks of CPU time.

/// The clock in use.
pub(crate) const NAME: &str = "CLOCK_THREAD_CPUTIME_ID";

pub(crate) fn thread_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn process_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Linux has both clocks since 2.6.12. A system that lacks one leaves zero, and nothing is
    // charged. SAFETY: 1. `time` is live and writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
