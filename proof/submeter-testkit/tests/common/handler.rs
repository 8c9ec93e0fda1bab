//! The unsafe parts of these tests: a signal handler, and timers that interrupt one thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, ptr};

/// The work of the handler, once it is installed.
static WORK: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

const SIGNAL: libc::c_int = libc::SIGPROF;

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if let Some(work) = WORK.get() {
        work();
    }
    // SAFETY: 1. The kernel passes a live siginfo. 2. Only timers of this file send the signal,
    // and each with the address of an `Armed` that is never freed.
    let armed = unsafe { &*(*info).si_value().sival_ptr.cast::<Armed>() };
    armed.start();
}

/// Makes the signal of every [`Timer`] run `work` from now on; only one test per process may call
/// it.
///
/// `work` must be async-signal-safe: it may interrupt any code.
pub(crate) fn on_signal(work: impl Fn() + Send + Sync + 'static) {
    assert!(WORK.set(Box::new(work)).is_ok(), "only one test per process may handle the signal");
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    // SAFETY: 1. A zeroed sigaction is one with an empty mask. 2. The handler calls what tests give
    // it, which is updates and atomics: what it claims to be safe there is what is tested.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        libc::sigaction(SIGNAL, &raw const action, ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// What the handler knows about the timer that it runs for.
struct Armed {
    /// The id, which stays when the timer is deleted; set before it fires for the first time.
    timer: AtomicPtr<libc::c_void>,
    delay_ns: i64,
}

impl Armed {
    /// Makes the timer fire once, after its delay. Leaves errno unchanged, for use in a handler.
    fn start(&self) {
        // Relaxed: the kernel orders a signal after the call that started its timer.
        let timer: libc::timer_t = self.timer.load(Ordering::Relaxed);
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let delay = libc::timespec { tv_sec: 0, tv_nsec: self.delay_ns as _ };
        let times = libc::itimerspec { it_interval: once, it_value: delay };
        // SAFETY: 1. The address of the calling thread's errno. 2. `times` is live. 3. An id whose
        // timer is deleted is an error, and one that another timer of this file has by now lets
        // that one go off a little later.
        unsafe {
            let errno = *libc::__errno_location();
            libc::timer_settime(timer, 0, &raw const times, ptr::null_mut());
            *libc::__errno_location() = errno;
        }
    }
}

/// A timer that interrupts one thread repeatedly, until it is dropped.
///
/// It is rearmed after each run of the handler, so that the interrupted code continues however long
/// the handler takes. A periodic timer whose handler takes longer than its period, as in an
/// unoptimised build or under an emulator, would interrupt the same instruction forever.
pub(crate) struct Timer(&'static Armed);

impl Timer {
    /// # Errors
    /// When the kernel has no timers left.
    pub(crate) fn on_this_thread(delay_ns: i64) -> io::Result<Timer> {
        // SAFETY: takes nothing and returns a number.
        Timer::on_thread(unsafe { libc::gettid() }, delay_ns)
    }

    /// Makes a timer for the thread of this process that the kernel knows by `tid`.
    ///
    /// # Errors
    /// When there is no such thread, or the kernel has no timers left.
    pub(crate) fn on_thread(tid: libc::pid_t, delay_ns: i64) -> io::Result<Timer> {
        // Leaked: a signal may still be pending when the timer is gone.
        let armed =
            &*Box::leak(Box::new(Armed { timer: AtomicPtr::new(ptr::null_mut()), delay_ns }));
        let mut timer = ptr::null_mut();
        // SAFETY: 1. A zeroed sigevent is valid, and its fields are set as timer_create(2) asks. 2.
        // Both pointers are live for the call.
        let done = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = tid;
            event.sigev_value.sival_ptr = ptr::from_ref(armed).cast_mut().cast();
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // Relaxed: see `Armed::start`.
        armed.timer.store(timer, Ordering::Relaxed);
        armed.start();
        Ok(Timer(armed))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // Relaxed: see `Armed::start`.
        let timer = self.0.timer.load(Ordering::Relaxed);
        // SAFETY: made by `on_thread`, deleted once. A pending signal still reaches the handler,
        // which stays installed.
        unsafe { libc::timer_delete(timer) };
    }
}
