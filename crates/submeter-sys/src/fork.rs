//! Tells a forked child from its parent, without a system call.
//!
//! It uses a page that the kernel wipes in each child, however the child was created. Handlers of
//! the C library run only in `fork`, and not in a child of `_Fork` or a bare `clone`, which must
//! also know that pages of perf events are missing. Where the kernel cannot wipe (Linux before
//! 4.14, other systems), the handlers are used. Windows has no forks.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::memory::Reservation;
use crate::os;

/// The number of this process; 0 in a child that has not been asked yet. It is in a page that forks
/// wipe, or is `EARLY`.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const EARLY).cast_mut());

/// Used until there is a page.
static EARLY: AtomicU32 = AtomicU32::new(1);

/// The largest number assigned in this process or its ancestors.
static LAST: AtomicU32 = AtomicU32::new(1);

/// The parent's number, as of its last fork.
static FORKED: AtomicU32 = AtomicU32::new(0);

/// Whether the handlers are in place; see `watch`.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Returns the number of this process, which its ancestors do not have. Never 0.
///
/// A lock records it with its holder: a holder of another generation does not exist in this
/// process, and never releases the lock. A process id would not do: it costs a system call, and ids
/// are reused. A child of `vfork`, or any other child that shares the memory, cannot be told apart.
#[inline]
#[must_use]
pub fn generation() -> u32 {
    // Relaxed: written once in a process, before the first comparison; only the number itself
    // matters.
    let generation = word().load(Ordering::Relaxed);
    if generation == 0 { born() } else { generation }
}

/// Returns whether this is the process to which [`generation`] gave that number: one comparison
/// less than asking for the number.
#[inline(always)]
#[must_use]
pub fn is(generation: u32) -> bool {
    // Relaxed: as in `generation`. A child without a number yet has 0, which no process has as its
    // number.
    word().load(Ordering::Relaxed) == generation
}

/// The process that created it. Tells whether this is still the same process, with one load less
/// than [`is`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    word: &'static AtomicU32,
    generation: u32,
}

impl Home {
    /// Records this process, and notices its forks from now on.
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

/// Makes [`generation`] work from now on. Costs a load if it does already.
///
/// If neither the kernel can wipe a page nor the C library register a handler (out of memory),
/// forks go unnoticed.
pub fn watch() {
    // Acquire: pairs with the Release below, so that a thread that finds forks watched finds the
    // page too, if there was memory for one: `Home` keeps its word. If two threads come first
    // together, they register the handlers twice, which is harmless.
    if WATCHED.load(Ordering::Acquire) == 0 {
        os::fork::note_handlers(Some(in_parent), in_child);
        if let Ok(page) = wiped_page() {
            use_page(page);
        }
        // Release: after the page; pairs with the Acquire above.
        WATCHED.store(1, Ordering::Release);
    }
}

/// Calls `reset` on the only thread of each child, before `fork` returns there, from now on. It may
/// do what a signal handler may. Children of `_Fork` or a bare `clone` do not call it. If memory is
/// short, no child does.
pub fn in_each_child(reset: extern "C" fn()) {
    os::fork::note_handlers(None, reset);
}

#[inline(always)]
fn word() -> &'static AtomicU32 {
    // Acquire: pairs with the Release in `use_page`, so that the page has its number.
    let word = WORD.load(Ordering::Acquire);
    // SAFETY: 1. The word is never freed: it is a static, or in a page that `use_page` forgot.
    // 2. It is only accessed atomically: this module has no other access.
    unsafe { &*word }
}

/// Gives a number to a child that has none yet.
#[cold]
#[inline(never)]
fn born() -> u32 {
    // Relaxed: only uniqueness matters. It comes before the exchange: if this process forks between
    // the two, the child finds this number taken.
    let name = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Relaxed: only the number itself matters. Another thread of the child may have been first.
    match word().compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => name,
        Err(other) => other,
    }
}

fn use_page(page: Reservation) {
    let word = page.base().cast::<AtomicU32>();
    // Relaxed: published by what follows. SAFETY: 1. The word is inside the page, and aligned: it
    // is the page's first. 2. No other code knows the page: `wiped_page` has just made it.
    unsafe { word.as_ref() }.store(EARLY.load(Ordering::Relaxed), Ordering::Relaxed);
    let early = (&raw const EARLY).cast_mut();
    // Release: pairs with the Acquire in `word`. Relaxed on failure: another thread's page serves.
    let won = WORD.compare_exchange(early, word.as_ptr(), Ordering::Release, Ordering::Relaxed);
    if won.is_ok() {
        // Never unmapped: it is read until the process ends.
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

    /// Runs `child` in a child process that `make` creates, and returns how that ended.
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
        // SAFETY: 1. The child does only what a child of a threaded process may: it loads, stores,
        // and ends.
        unsafe { libc::fork() }.into()
    }

    /// Forks like `_Fork`: no handler runs.
    fn bare_clone() -> libc::c_long {
        // SAFETY: 1. As for `fork`. 2. The child's memory and stack are copies: no flag shares
        // them.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
    }

    /// Returns whether the page, not the handler, reveals a bare clone.
    pub(crate) fn pages_are_wiped() -> bool {
        let wiped = wiped_page().is_ok();
        if !wiped {
            eprintln!("skipped: this kernel cannot wipe a page at a fork: use 4.14 or later");
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

    /// A child, however created, is of another generation, and so is its own child.
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
                // The grandchild of a child that was asked, and of one that was not.
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
