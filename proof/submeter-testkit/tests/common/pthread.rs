//! Threads of a forked child.
//!
//! The C library repairs its own locks in a child; the standard library does not. It records each
//! thread that starts or ends under a lock of the process. If a thread of the parent was in the
//! middle of that at the fork, a `std::thread` of the child never returns.

/// Runs `work` on another thread and waits for it; returns false if no thread is available.
pub(crate) fn on_another_thread(mut work: impl FnMut() + Send) -> bool {
    extern "C" fn call<F: FnMut()>(work: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: 1. It points to a live closure of this type: the caller's below, who waits for
        // this thread. 2. Nobody else uses it.
        let work = unsafe { &mut *work.cast::<F>() };
        work();
        std::ptr::null_mut()
    }
    fn called<F: FnMut()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> *mut libc::c_void {
        call::<F>
    }
    let call = called(&work);
    // SAFETY: 1. The thread number is live and writable. 2. `call` is given what it asks for: a
    // closure of its type, which lives until the thread was waited for. 3. It may be sent there.
    unsafe {
        let mut thread = std::mem::zeroed();
        let work = (&raw mut work).cast();
        libc::pthread_create(&raw mut thread, std::ptr::null(), call, work) == 0
            && libc::pthread_join(thread, std::ptr::null_mut()) == 0
    }
}
