//! Tells a forked child from its parent, without a system call.
//!
//! By a page that the kernel wipes in each child, however the child was made: handlers of the C
//! library's run in `fork` alone, and not in a child of `_Fork` or a bare `clone`, which has to
//! know just as well that pages of perf events are not there. Where the kernel cannot wipe (Linux
//! before 4.14, other systems), the handler serves. Windows has no forks.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::memory::Reservation;
use crate::os;

/// The number of this process; 0 in a child that was not asked yet. In a page that forks wipe,
/// or `EARLY`.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const EARLY).cast_mut());

/// Serves until there is a page.
static EARLY: AtomicU32 = AtomicU32::new(1);

/// The largest number that was given in this process or those above it.
static LAST: AtomicU32 = AtomicU32::new(1);

/// The parent's number, as of its last fork.
static FORKED: AtomicU32 = AtomicU32::new(0);

/// Whether the handlers are in place; see `watch`.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Returns the number of this process, which those that it was forked from do not have. Never 0.
///
/// A lock's note of its holder: a holder of another generation does not exist in this process, and
/// never lets go. Not a process number: that is a system call, and repeats. A child of `vfork`, or
/// another that shares the memory, cannot be told apart.
#[inline]
#[must_use]
pub fn generation() -> u32 {
    // Relaxed: written once in a process, before the first comparison; the number is all there is
    // to see.
    let generation = word().load(Ordering::Relaxed);
    if generation == 0 { born() } else { generation }
}

/// Returns whether this is the process that [`generation`] named so: a comparison less than asking
/// for it.
#[inline(always)]
#[must_use]
pub fn is(generation: u32) -> bool {
    // Relaxed: as in `generation`. A child that has no number yet has 0, which is no process's
    // number.
    word().load(Ordering::Relaxed) == generation
}

/// The process that made it. Answers whether that is still this one with one load less than
/// [`is`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    word: &'static AtomicU32,
    generation: u32,
}

impl Home {
    /// Names this process, and notices its forks from now on.
    pub(crate) fn new() -> Home {
        watch();
        Home { generation: generation(), word: word() }
    }

    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        // Relaxed: as in `is`. The word stays the same once forks are watched.
        self.word.load(Ordering::Relaxed) == self.generation
    }
}

/// Makes [`generation`] work from now on. Costs a load when it does already.
///
/// Where neither the kernel can wipe a page nor the C library note a handler (out of memory), forks
/// go unnoticed.
pub fn watch() {
    // Acquire: pairs with the Release below, so that a thread that finds forks watched finds the
    // page too, if there was memory for one: `Home` keeps its word. Two threads that are first
    // together register two handlers, which does no harm.
    if WATCHED.load(Ordering::Acquire) == 0 {
        os::fork::note_handlers(in_parent, in_child);
        if let Ok(page) = wiped_page() {
            use_page(page);
        }
        // Release: after the page; pairs with the Acquire above.
        WATCHED.store(1, Ordering::Release);
    }
}

#[inline(always)]
fn word() -> &'static AtomicU32 {
    // Acquire: pairs with the Release in `use_page`, so that the page has its number.
    let word = WORD.load(Ordering::Acquire);
    // SAFETY: 1. The word is never freed: it is a static, or in a page that `use_page` forgot.
    // 2. It is accessed atomically only: this module has no other access.
    unsafe { &*word }
}

/// Names a child that has no name yet.
#[cold]
#[inline(never)]
fn born() -> u32 {
    // Relaxed: only uniqueness matters. Before the exchange: if this process forks between the two,
    // the child finds this number taken.
    let name = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Relaxed: the number is all there is to see. Another thread of the child may have been first.
    match word().compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => name,
        Err(other) => other,
    }
}

fn use_page(page: Reservation) {
    let word = page.base().cast::<AtomicU32>();
    // Relaxed: published by what follows.
    // SAFETY: 1. The word is inside the page, and aligned: it is the page's first. 2. No other
    // code knows the page: `wiped_page` has just made it.
    unsafe { word.as_ref() }.store(EARLY.load(Ordering::Relaxed), Ordering::Relaxed);
    let early = (&raw const EARLY).cast_mut();
    // Release: pairs with the Acquire in `word`. Relaxed on failure: another thread's page serves.
    let won = WORD.compare_exchange(early, word.as_ptr(), Ordering::Release, Ordering::Relaxed);
    if won.is_ok() {
        // Never given back: it is asked until the process ends.
        std::mem::forget(page);
    }
}

fn wiped_page() -> io::Result<Reservation> {
    let page = Reservation::new(crate::memory::page_size())?;
    os::fork::wipe(&page)?;
    Ok(page)
}

extern "C" fn in_parent() {
    // Relaxed: the thread that forks reads it in the child. Every thread stores the same number.
    FORKED.store(generation(), Ordering::Relaxed);
}

/// Does what the kernel does, where the kernel does not.
extern "C" fn in_child() {
    // Relaxed, all: the child has only one thread.
    let (word, parent) = (word(), FORKED.load(Ordering::Relaxed));
    // Not a store: a handler that was registered earlier may have asked for the child's number.
    let _ = word.compare_exchange(parent, 0, Ordering::Relaxed, Ordering::Relaxed);
    if !std::ptr::eq(word, &raw const EARLY) {
        // A thread that found no page may still look here.
        EARLY.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
pub(crate) mod tests {
    use super::*;

    /// Runs `child` in a child that `make` makes, and returns how that ended.
    fn status_of(make: impl Fn() -> libc::c_long, child: impl Fn() -> bool) -> i32 {
        let made = make();
        assert!(made >= 0, "{}", io::Error::last_os_error());
        if made == 0 {
            let right = child();
            // SAFETY: 1. The call takes a number and does not return.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: 1. `status` is live and writable. 2. The child is ours to wait for: made above.
        assert_eq!(unsafe { libc::waitpid(made as i32, &raw mut status, 0) }, made as i32);
        status
    }

    fn fork() -> libc::c_long {
        // SAFETY: 1. The child does only what a child of threads may: it loads, stores, and ends.
        unsafe { libc::fork() }.into()
    }

    /// As `_Fork`: no handler runs.
    fn bare_clone() -> libc::c_long {
        // SAFETY: 1. As for `fork`. 2. The child's memory and stack are copies: no flag shares
        // them.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
    }

    /// The page, and not the handler, is what makes a bare clone known.
    pub(crate) fn pages_are_wiped() -> bool {
        let wiped = wiped_page().is_ok();
        if !wiped {
            eprintln!("skipped: this kernel cannot wipe a page at a fork: take 4.14 or later");
        }
        wiped
    }

    /// A child keeps the number that an earlier handler was given.
    #[test]
    fn a_child_has_one_number() {
        watch();
        let status = status_of(fork, || {
            let early = generation();
            in_child();
            generation() == early
        });
        assert_eq!(status, 0);
    }

    /// A child, however it is made, is of another generation, and so is its own child.
    #[test]
    fn every_child_is_another_generation() {
        watch();
        watch();
        let parent = generation();
        assert!(is(parent));
        let mut ways: Vec<fn() -> libc::c_long> = vec![fork];
        if pages_are_wiped() {
            ways.push(bare_clone);
        }
        for way in ways {
            let status = status_of(way, || {
                let child = generation();
                let differs = !is(parent) && child != parent && is(child) && child == generation();
                // Of a child that was asked, and of one that was not.
                differs && status_of(way, || ![parent, child, 0].contains(&generation())) == 0
            });
            assert_eq!((status, generation()), (0, parent));
            let status = status_of(way, || {
                status_of(way, || !is(parent) && ![parent, 0].contains(&generation())) == 0
            });
            assert_eq!((status, generation()), (0, parent));
        }
    }
}
