//! Our own registration, for a libc that does not register.
//!
//! Everything here may run in a signal handler, because the first add on a thread may: the state
//! lies beside the area in the initial TLS block, and a pthread key, whose first values a thread
//! stores without allocating, reports the end of the thread. A `thread_local!` with a destructor
//! would allocate to register it.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::arch;

/// The original `struct rseq`: 32 bytes, which every kernel with rseq accepts.
const AREA_BYTES: usize = 32;
const FLAG_UNREGISTER: libc::c_int = 1;

/// This thread's state, in the word after its area.
const UNTRIED: u32 = 0;
const REGISTERED: u32 = 1;
/// The kernel refused.
const REFUSED: u32 = 2;
/// The thread is ending and has been unregistered; it stays so.
const ENDED: u32 = 3;

/// Creates what [`register`] needs, once per process. Not for signal handlers.
pub(crate) fn prepare_process() -> io::Result<()> {
    // Acquire: pairs with the Release below, so that the key exists.
    if KEY.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: 1. `key` is live and writable. 2. `end` still exists when a thread ends: `pin.rs`
    // keeps this object loaded.
    let errno = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // Release: pairs with the Acquire above and in `register`. A store, not an exchange: one thread
    // at a time decides. A forked child that decides again makes another key, and the old one is
    // harmless.
    KEY.store(u64::from(key) + 1, Ordering::Release);
    Ok(())
}

/// Registers the calling thread's area, at most once per thread.
pub(crate) fn register() -> io::Result<()> {
    // Acquire: pairs with the Release in `prepare_process`.
    let key = KEY.load(Ordering::Acquire);
    if arch::SIGNATURE == 0 || key == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let state = state();
    // Relaxed: only this thread uses the word; atomic because a handler of its own may come
    // between.
    match state.load(Ordering::Relaxed) {
        UNTRIED => {}
        REGISTERED => return Ok(()),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    // The key comes first: a registered thread must be unregistered when it ends, because the
    // memory of its area may be unmapped (musl does) while the kernel could still write to it.
    // SAFETY: 1. The key exists: `prepare_process` made it. 2. The value is not an address: only
    // `end` reads it.
    let errno = unsafe {
        libc::pthread_setspecific(
            (key - 1) as libc::pthread_key_t,
            std::ptr::without_provenance(FIRST_ROUND),
        )
    };
    let result = if errno == 0 { rseq(0) } else { Err(io::Error::from_raw_os_error(errno)) };
    let result = match result {
        // This very area is registered already: a handler came between and did it.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        result => result,
    };
    // Relaxed: see above.
    state.store(if result.is_ok() { REGISTERED } else { REFUSED }, Ordering::Relaxed);
    result
}

/// The pthread key plus 1, 0 before there is one. Never deleted: threads hold values of it.
static KEY: AtomicU64 = AtomicU64::new(0);

/// Ends a thread's registration, in the second round of key destructors, so that adds in the
/// destructors of `thread_local!` values (which are keys themselves in static programs) and of
/// first-round keys are still sequences. Later adds find no registration, and do without.
extern "C" fn end(round: *mut libc::c_void) {
    if round.addr() == FIRST_ROUND {
        // Acquire: pairs with the Release in `prepare_process`.
        let key = (KEY.load(Ordering::Acquire) - 1) as libc::pthread_key_t;
        // SAFETY: 1. The key exists: `prepare_process` made it. 2. The value is not an address:
        // only `end` reads it.
        if unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(FIRST_ROUND + 1)) }
            == 0
        {
            return;
        }
    }
    // Relaxed: only this thread uses the word. A handler that comes between sees the thread ended.
    if state().swap(ENDED, Ordering::Relaxed) == REGISTERED {
        // A failure leaves the thread registered, as it would be had this never been tried.
        let _ = rseq(FLAG_UNREGISTER);
    }
}

/// The key's value until its destructor first runs.
const FIRST_ROUND: usize = 1;

/// Returns the calling thread's state word.
fn state() -> &'static AtomicU32 {
    let word = own_area() + AREA_BYTES;
    // SAFETY: 1. The word is part of the 64 bytes that the ISA file reserves for each thread,
    // aligned to 4. 2. Only this module accesses it, on its own thread. 3. The reference is used
    // before the function that asked for it returns: 'static stands for "while the thread runs".
    unsafe { AtomicU32::from_ptr(word as *mut u32) }
}

fn own_area() -> usize {
    arch::thread_pointer().wrapping_add_signed(arch::own_area_offset())
}

fn rseq(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: 1. The call takes nothing and returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // Saved, because a handler must not change the `errno` that it interrupted. SAFETY: 1. The
    // address is valid while the thread runs: libc's promise.
    let before = unsafe { *errno };
    // SAFETY: 1. The area is 32 bytes, aligned to 32, in this thread's initial TLS block, which
    // outlives the registration (see `end`). 2. Only the kernel and this thread's sequences write
    // it.
    let result =
        unsafe { libc::syscall(libc::SYS_rseq, own_area(), AREA_BYTES, flags, arch::SIGNATURE) };
    let result = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: 1. As above.
    unsafe { *errno = before };
    result
}
