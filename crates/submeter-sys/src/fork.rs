//! Tells a forked child from its parent, without a system call.

use std::sync::atomic::{AtomicU32, Ordering};

/// Grows by one in each forked child; 1 in a process that never was one.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Whether the handler is in place; see `watch`.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Returns how many forks lie between this process and the one that first asked, plus one.
///
/// What a lock notes of its holder: a holder of another generation does not exist in this process, and never lets
/// go. Not a process number: that is a system call, and repeats. A child made by a bare `clone`
/// instead of `fork` is not told apart.
#[inline]
#[must_use]
pub fn generation() -> u32 {
    // Relaxed: only the one thread of a new child writes it.
    GENERATION.load(Ordering::Relaxed)
}

/// Makes [`generation`] work from now on. Costs a load when it does already.
///
/// Where the C library cannot note the handler (out of memory), forks go unnoticed.
pub fn watch() {
    // Relaxed: nothing is published. Two threads that come first together note two handlers, and a
    // fork then counts twice, which is as good.
    if WATCHED.load(Ordering::Relaxed) == 0 {
        note_handler();
        // Relaxed: as above.
        WATCHED.store(1, Ordering::Relaxed);
    }
}

#[cfg(not(miri))]
fn note_handler() {
    extern "C" fn in_child() {
        // Relaxed: the child has one thread yet.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler touches one static atomic, which is allowed in a child of a threaded process.
    // A library that is unloaded takes its handlers with it.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Miri knows no forks.
#[cfg(miri)]
fn note_handler() {}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_of_another_generation() {
        watch();
        watch();
        let parent = generation();
        // SAFETY: the child calls nothing but a load and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let differs = generation() != parent;
            // SAFETY: ends the child at once, without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!differs)) };
        }
        let mut status = -1;
        // SAFETY: `status` is live; `child` is ours to wait for.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, generation()), (0, parent));
    }
}
