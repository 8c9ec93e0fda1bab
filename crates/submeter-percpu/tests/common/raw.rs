//! What tests need that is unsafe: forks.

/// Runs `child` in a forked child process; returns whether it returned true, within a minute.
pub(crate) fn in_a_fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs test code in a copy of a process with other threads: it may take
    // those locks only that a fork handles, which is what is tested, and glibc's allocator, which it does.
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

/// What the handler of `interrupt` does, and on what: null for nothing.
#[cfg(submeter_inject)]
static TARGET: std::sync::atomic::AtomicPtr<submeter_percpu::PercpuRef> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

/// Calls `with`; meanwhile each `interrupt` makes the interrupted thread take one reference of
/// `reference`, by two gets and a put.
#[cfg(submeter_inject)]
pub(crate) fn with_handler<R>(
    reference: &submeter_percpu::PercpuRef,
    with: impl FnOnce() -> R,
) -> R {
    use std::sync::atomic::Ordering;

    extern "C" fn handle(_: libc::c_int) {
        // Acquire: pairs with the Release below.
        let target = TARGET.load(Ordering::Acquire);
        // SAFETY: null, or the reference that `with_handler` keeps until it is null again and every
        // thread that was interrupted has been joined.
        if let Some(reference) = unsafe { target.as_ref() } {
            reference.get();
            reference.get();
            reference.put();
        }
    }

    // Release: pairs with the Acquire above.
    TARGET.store(std::ptr::from_ref(reference).cast_mut(), Ordering::Release);
    let handler: extern "C" fn(libc::c_int) = handle;
    // SAFETY: the handler does nothing but gets and puts, which handlers may.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let result = with();
    // Release: as above.
    TARGET.store(std::ptr::null_mut(), Ordering::Release);
    result
}

/// The calling thread, for `interrupt` and `migrate`.
#[cfg(submeter_inject)]
#[derive(Clone, Copy)]
pub(crate) struct ThreadId(libc::pid_t);

#[cfg(submeter_inject)]
impl ThreadId {
    pub(crate) fn here() -> ThreadId {
        // SAFETY: takes nothing, returns a number.
        ThreadId(unsafe { libc::gettid() })
    }

    /// Sends it the signal, wherever it is. It must not have been joined.
    pub(crate) fn interrupt(self) {
        // SAFETY: takes three numbers; the thread is one of this process.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGUSR1) };
    }

    /// Moves it to a CPU. It must not have been joined.
    pub(crate) fn migrate(self, cpu: usize) {
        // SAFETY: a set of plain bits, live for the call.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(self.0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}
