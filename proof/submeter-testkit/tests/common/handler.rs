//! The unsafe parts of these tests: a signal handler, and timers that interrupt one thread.

use std::io;
use std::sync::OnceLock;

/// The work of the handler, once it is installed.
static WORK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

const SIGNAL: libc::c_int = libc::SIGPROF;

extern "C" fn handle(_: libc::c_int) {
    if let Some(work) = WORK.get() {
        work();
    }
}

/// Makes the signal of every [`Timer`] run `work` from now on; only one test per process may call
/// it.
///
/// `work` must be async-signal-safe: it may interrupt any code.
pub(crate) fn on_signal(work: impl Fn() + Send + Sync + 'static) {
    assert!(WORK.set(Box::new(work)).is_ok(), "only one test per process may handle the signal");
    let handler: extern "C" fn(libc::c_int) = handle;
    // SAFETY: 1. A zeroed sigaction is one with an empty mask. 2. The handler calls what tests give
    // it, which is updates and atomics: what it claims to be safe there is what is tested.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// A timer that interrupts one thread periodically, until it is dropped.
pub(crate) struct Timer(libc::timer_t);

impl Timer {
    /// # Errors
    /// When the kernel has no timers left.
    pub(crate) fn on_this_thread(period_ns: i64) -> io::Result<Timer> {
        // SAFETY: takes nothing and returns a number.
        Timer::on_thread(unsafe { libc::gettid() }, period_ns)
    }

    /// On the thread of this process that the kernel knows by `tid`.
    ///
    /// # Errors
    /// When there is no such thread, or the kernel has no timers left.
    pub(crate) fn on_thread(tid: libc::pid_t, period_ns: i64) -> io::Result<Timer> {
        let mut timer = std::ptr::null_mut();
        // SAFETY: 1. A zeroed sigevent is valid, and its fields are set as timer_create(2) asks. 2.
        // Both pointers are live for the calls.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = tid;
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            let period = libc::timespec { tv_sec: 0, tv_nsec: period_ns };
            let times = libc::itimerspec { it_interval: period, it_value: period };
            let started = libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut());
            assert_eq!(started, 0, "{}", io::Error::last_os_error());
        }
        Ok(Timer(timer))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `on_this_thread`, deleted once. A pending signal still reaches the
        // handler, which stays installed.
        unsafe { libc::timer_delete(self.0) };
    }
}
