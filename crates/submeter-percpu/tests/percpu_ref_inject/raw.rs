//! The unsafe part of the test: signals, and the affinity of another thread.

use std::sync::atomic::{AtomicPtr, Ordering};

use submeter_percpu::PercpuRef;

/// The reference that the signal handler uses; null while it does nothing.
static TARGET: AtomicPtr<PercpuRef> = AtomicPtr::new(std::ptr::null_mut());

/// Calls `with`. Until it returns, each `interrupt` makes its thread take one reference of
/// `reference`, by two gets and a put.
pub(crate) fn with_handler<R>(reference: &PercpuRef, with: impl FnOnce() -> R) -> R {
    extern "C" fn handle(_: libc::c_int) {
        // Acquire: pairs with the Release below.
        let target = TARGET.load(Ordering::Acquire);
        // SAFETY: it is null, or the reference that `with_handler` keeps until it is null again and
        // every interrupted thread has been joined.
        if let Some(reference) = unsafe { target.as_ref() } {
            reference.get();
            reference.get();
            reference.put();
        }
    }

    // Release: pairs with the Acquire above.
    TARGET.store(std::ptr::from_ref(reference).cast_mut(), Ordering::Release);
    let handler: extern "C" fn(libc::c_int) = handle;
    // SAFETY: the handler only gets and puts, which handlers may do.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let result = with();
    // Release: as above.
    TARGET.store(std::ptr::null_mut(), Ordering::Release);
    result
}

/// The calling thread, for `interrupt` and `migrate`.
#[derive(Clone, Copy)]
pub(crate) struct ThreadId(libc::pid_t);

impl ThreadId {
    pub(crate) fn here() -> ThreadId {
        // SAFETY: it takes nothing and returns a number.
        ThreadId(unsafe { libc::gettid() })
    }

    /// Sends the thread the signal, wherever it is. It must not have been joined.
    pub(crate) fn interrupt(self) {
        // SAFETY: it takes three numbers; the thread belongs to this process.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGUSR1) };
    }

    /// Moves the thread to a CPU. It must not have been joined.
    pub(crate) fn migrate(self, cpu: usize) {
        // SAFETY: it is a set of plain bits, live for the call.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(self.0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}
