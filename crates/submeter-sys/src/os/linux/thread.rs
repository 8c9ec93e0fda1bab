//! Threads of our own, for the self-test and for visits.
//!
//! Not the standard library's: those allocate before they run their closure, and an allocator that
//! counts through submeter would then wait for the decision that waits for them.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;

/// Runs `background` on a new thread and `foreground` here, and returns when both are done. Returns
/// `None`, with nothing run, if the thread cannot be created. `background` must not panic: it
/// aborts the program.
pub(crate) fn beside<R>(
    background: &(dyn Fn() + Sync),
    foreground: impl FnOnce() -> R,
) -> Option<R> {
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let argument = (&raw const background).cast_mut().cast();
    // SAFETY: 1. `thread` is writable: it is a local variable. 2. `argument` points to a live
    // reference, which outlives the thread: `Join` waits for the thread even if `foreground`
    // panics.
    let errno =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), start, argument) };
    if errno != 0 {
        return None;
    }
    // SAFETY: 1. The value is initialised: the successful call wrote it.
    let _join = Join(unsafe { thread.assume_init() });
    Some(foreground())
}

/// Starts a detached thread on which none of the program's handlers runs.
///
/// # Errors
/// The same as `pthread_create`.
///
/// # Safety
/// `run` may be called with `argument` on another thread, at any time. It does not unwind.
pub(crate) unsafe fn detached(
    run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    let _blocked = SignalsBlocked::new();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: 1. Both are writable: they are local variables. 2. The attributes are initialised
    // before they are used, and destroyed once. 3. `run` and `argument` go together: the caller's
    // promise.
    let errno = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let errno = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, argument);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        errno
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Gives the calling thread the ordinary scheduling policy instead of the program's, which it
/// inherits: under `SCHED_FIFO` no thread preempts another of its priority, and under `SCHED_BATCH`
/// no waking thread preempts another.
pub(crate) fn share_the_cpu() {
    // SAFETY: 1. Zeroes are a valid parameter: plain data, and the priority of this policy is 0.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // Not by libc's function, which musl omits. A refusal leaves the policy unchanged. SAFETY: 1.
    // The parameter is live. 2. It only affects the calling thread: 0 names it.
    unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_OTHER, &raw const parameter);
    }
}

/// Makes the scheduler give the calling thread short turns, and soon: from Linux 6.12 on, a thread
/// with a shorter slice takes the CPU from one with a longer slice. Otherwise the thread waits for
/// a tick of a busy CPU. Needs no privilege.
pub(crate) fn take_short_turns() {
    /// linux/sched/types.h, as first published; the kernel is told its size.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    // SAFETY: 1. The call takes numbers and returns one. 0 names the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        // The shortest possible slice.
        runtime_ns: 100_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: 1. The attributes are live, and of the size that they state. 2. They only affect the
    // calling thread: 0 names it. A refusal changes nothing.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Returns how often the calling thread was switched out; `None` if the kernel does not report it.
pub(crate) fn switches() -> Option<i64> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: 1. `usage` is live and writable.
    let asked = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: 1. Initialised, whether or not the call succeeded: zeroes are numbers.
    let usage = unsafe { usage.assume_init() };
    #[allow(clippy::useless_conversion, reason = "c_long has 32 bits on some targets")]
    (asked == 0).then(|| i64::from(usage.ru_nvcsw) + i64::from(usage.ru_nivcsw))
}

/// Blocks signals on the calling thread until dropped; threads that it starts inherit that. Signals
/// that an instruction raises are exempt: if they are blocked, they end the process, and a sandbox
/// that answers system calls with `SIGSYS` would do that.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        // SAFETY: 1. Zeroes are a valid set: a signal set is plain data. 2. The calls read and
        // write live, distinct sets: both are local.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for raised in [
                libc::SIGSYS,
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
                libc::SIGTRAP,
            ] {
                libc::sigdelset(&raw mut all, raised);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            SignalsBlocked { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: 1. `before` is a live set: `new` filled it. 2. No old set is written: the pointer
        // is null.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
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
