//! Threads for the self-test.
//!
//! Not the standard library's: those allocate before they run what they are given, and an allocator
//! that counts through submeter would then wait for the decision that waits for them.

use std::cell::Cell;
use std::mem::MaybeUninit;

/// Runs `background` on a thread of its own and `foreground` here, and returns when both are done.
/// `None`, with nothing run, if the thread cannot be had. `background` must not panic: it aborts
/// the program.
pub(crate) fn beside<R>(
    background: &(dyn Fn() + Sync),
    foreground: impl FnOnce() -> R,
) -> Option<R> {
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let argument = (&raw const background).cast_mut().cast();
    // SAFETY: 1. `thread` is writable: it is here. 2. `argument` points to a live reference, which
    // outlives the thread: `Join` waits for it, also if `foreground` panics.
    let errno =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), start, argument) };
    if errno != 0 {
        return None;
    }
    // SAFETY: 1. The value is initialised: the successful call wrote it.
    let _join = Join(unsafe { thread.assume_init() });
    Some(foreground())
}

/// Returns the calling thread's number.
pub(crate) fn number() -> u32 {
    // SAFETY: 1. The call takes nothing and returns a number: gettid(2) says so.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Returns whether the calling thread was started by [`beside`].
pub(crate) fn is_ours() -> bool {
    OURS.try_with(Cell::get).unwrap_or(false)
}

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Joins a thread when dropped.
struct Join(libc::pthread_t);

impl Drop for Join {
    fn drop(&mut self) {
        // SAFETY: 1. The thread exists: `beside` made it. 2. It is joined once: here.
        unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
    }
}

extern "C" fn start(argument: *mut libc::c_void) -> *mut libc::c_void {
    OURS.set(true);
    // SAFETY: 1. The pointer is to a reference that outlives this thread: `beside` passed it.
    let background = unsafe { *argument.cast::<&(dyn Fn() + Sync)>() };
    background();
    std::ptr::null_mut()
}
