//! Where a thread's next sample is.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::odds;

struct Here {
    /// How many bytes come before the next sample; less than 0 when the last block reached it.
    /// Every small block is taken off here, and nothing else happens to most.
    left: Cell<i64>,
    /// Set while the other words are changed. A signal handler that comes then leaves them alone:
    /// its blocks are not sampled.
    is_busy: Cell<bool>,
    /// 0 for a thread that has not begun.
    random: Cell<u64>,
}

thread_local! {
    /// Constant and without a destructor: as the words of [`Metered`](crate::Metered).
    static HERE: Here = const {
        Here {
            left: Cell::new(0),
            is_busy: Cell::new(false),
            random: Cell::new(0),
        }
    };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Takes bytes off, and returns whether they are before the next place: then they are not sampled,
/// and there is nothing more to do. Otherwise [`is_due`] is.
#[inline(always)]
pub(super) fn pass(size: usize) -> bool {
    // It never fails, as there is no destructor; `with` would have code for a panic.
    HERE.try_with(|here| {
        let left = here.left.get().wrapping_sub(size as i64);
        here.left.set(left);
        left >= 0
    })
    .unwrap_or(true)
}

/// Undoes a [`pass`].
fn give_back(size: usize) {
    let _ = HERE.try_with(|here| here.left.set(here.left.get().wrapping_add(size as i64)));
}

/// Calls `change` unless it is being called on this thread: no handler is in the middle of another.
fn alone<T>(change: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.try_with(|here| {
        if here.is_busy.replace(true) {
            return None;
        }
        // SeqCst, here and below: for handlers on this thread, which find the words in this order;
        // it emits no instruction.
        compiler_fence(Ordering::SeqCst);
        let result = change(here);
        compiler_fence(Ordering::SeqCst);
        here.is_busy.set(false);
        Some(result)
    })
    .ok()
    .flatten()
}

fn random(here: &Here) -> u64 {
    /// Differs between threads, whose words may lie where those of others did.
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let mut state = here.random.get();
    if state == 0 {
        // Relaxed: a number that no other thread has.
        let thread = THREADS.fetch_add(1, Ordering::Relaxed);
        state = ptr::from_ref(here).addr() as u64 ^ thread.rotate_right(16);
    }
    let random = odds::random(&mut state);
    here.random.set(state);
    random
}

/// Looks for the next place after a [`pass`] that returned false, and returns whether there was one
/// among the bytes. In a handler that interrupts this on its own thread they have none.
pub(super) fn is_due(size: usize) -> bool {
    let due = alone(|here| {
        if here.random.get() == 0 {
            // The first bytes of this thread, which has not looked for a place before.
            here.left.set(here.left.get().wrapping_add(odds::next_place(random(here))));
        }
        let is_due = here.left.get() < 0;
        if is_due {
            // What of a block comes after its first place does not matter: the next block begins as
            // far from the next place as any byte.
            here.left.set(odds::next_place(random(here)));
        }
        is_due
    });
    due.unwrap_or_else(|| {
        give_back(size);
        false
    })
}

/// Decides by a number of this thread's.
pub(super) fn draw(decide: impl FnOnce(u64) -> bool) -> bool {
    alone(|here| decide(random(here))).unwrap_or(false)
}

/// Calls while nothing is sampled on this thread; not if that is so already.
pub(super) fn unsampled<T>(call: impl FnOnce() -> T) -> Option<T> {
    alone(|_| call())
}

/// Returns whether the call takes bytes off here, as those of a `Sampled` do.
pub(super) fn passes(call: impl FnOnce()) -> bool {
    const BEFORE: i64 = odds::INTERVAL as i64;
    let set = |left| HERE.try_with(|here| here.left.replace(left)).unwrap_or(BEFORE);
    let left = set(BEFORE);
    call();
    set(left) != BEFORE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread begins as far from a place as any byte.
    #[test]
    fn a_thread_begins_as_far_off_as_any_byte() {
        let first = || !pass(1_000) && is_due(1_000);
        let threads = if cfg!(miri) { 10 } else { 1_000 };
        let met = (0..threads).filter(|_| std::thread::spawn(first).join().expect("no panic"));
        // One in 66, and not each.
        let met = met.count();
        assert!(met < 45 && (met > 0 || cfg!(miri)), "{met} of {threads}");
    }

    /// A handler in the middle samples nothing and takes nothing off.
    #[test]
    fn a_handler_in_the_middle_samples_nothing() {
        HERE.with(|here| here.left.set(10));
        let outcome = alone(|_| (pass(11), is_due(11), draw(|_| true)));
        assert_eq!(outcome, Some((false, false, false)));
        assert_eq!(HERE.with(|here| here.left.get()), 10);
        assert!(pass(10) && draw(|_| true), "it is over");
    }

    #[test]
    fn threads_draw_different_numbers() {
        let first = || HERE.with(random);
        let all: std::collections::HashSet<u64> =
            (0..20).map(|_| std::thread::spawn(first).join().expect("no panic")).collect();
        assert_eq!(all.len(), 20);
    }
}
