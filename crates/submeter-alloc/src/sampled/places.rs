//! Where a thread's next sample is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{process, ptr};

use submeter_sys::fork;

use super::odds;

struct Here {
    /// Bytes before the next sample; less than 0 when the last block reached it. Every small block
    /// is subtracted here, and for most nothing else happens.
    left: Cell<i64>,
    /// Set while the other words change. A signal handler that runs then leaves them alone: its
    /// blocks are not sampled.
    is_busy: Cell<bool>,
    /// 0 for a thread that has not started sampling.
    random: Cell<u64>,
}

thread_local! {
    /// Constant and without a destructor, like the words of [`Metered`](crate::Metered).
    static HERE: Here = const {
        Here {
            left: Cell::new(0),
            is_busy: Cell::new(false),
            random: Cell::new(0),
        }
    };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Subtracts bytes, and returns whether they all come before the next place. Then they are not
/// sampled and nothing more is to be done. Otherwise call [`is_due`].
#[inline(always)]
pub(super) fn pass(size: usize) -> bool {
    // It never fails because there is no destructor; `with` would contain code for a panic.
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

/// Calls `change` unless such a call is already running on this thread, which a handler
/// interrupted.
fn alone<T>(change: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.try_with(|here| {
        if here.is_busy.replace(true) {
            return None;
        }
        // SeqCst, here and below: for handlers on this thread, which see the words in this order.
        // It emits no instruction.
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
    let mut state = here.random.get();
    if state == 0 {
        state = seed(here);
    }
    let random = odds::random(&mut state);
    here.random.set(state);
    random
}

/// Returns a number that another thread of any process hardly has: their samples are summed, and
/// their errors must not add up.
#[cold]
fn seed(here: &Here) -> u64 {
    /// Makes a difference between threads, whose words may lie where another thread's did.
    static THREADS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only a unique number is needed.
    let thread = THREADS.fetch_add(1, Ordering::Relaxed);
    let mut seed = ptr::from_ref(here).addr() as u64 ^ thread.rotate_right(16);
    // Forked children have the same words, and containers the same process ids.
    seed = odds::random(&mut seed) ^ u64::from(process::id());
    // Miri has no such clock.
    let now =
        (!cfg!(miri)).then(SystemTime::now).and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    odds::random(&mut seed) ^ now.map_or(0, |now| now.as_nanos() as u64)
}

/// Makes forked children sample for themselves from now on.
pub(super) fn start() {
    fork::in_each_child(restart);
}

/// Lets a forked child's only thread begin like a new one. Its parent's next place would be
/// everybody's first.
extern "C" fn restart() {
    let _ = HERE.try_with(|here| {
        here.left.set(0);
        here.random.set(0);
    });
}

/// Finds the next place after a [`pass`] that returned false, and returns whether one was among the
/// bytes. In a handler that interrupts this on its own thread, none is.
pub(super) fn is_due(size: usize) -> bool {
    let due = alone(|here| {
        if here.random.get() == 0 {
            // The first bytes of this thread, which has not drawn a place before.
            here.left.set(here.left.get().wrapping_add(odds::next_place(random(here))));
        }
        let is_due = here.left.get() < 0;
        if is_due {
            // The part of a block after its first place does not matter: the next block is as far
            // from its next place as any byte.
            here.left.set(odds::next_place(random(here)));
        }
        is_due
    });
    due.unwrap_or_else(|| {
        give_back(size);
        false
    })
}

/// Decides by one of this thread's random numbers.
pub(super) fn draw(decide: impl FnOnce(u64) -> bool) -> bool {
    alone(|here| decide(random(here))).unwrap_or(false)
}

/// Runs `call` with sampling off on this thread. Does not run it if sampling is off already.
pub(super) fn unsampled<T>(call: impl FnOnce() -> T) -> Option<T> {
    alone(|_| call())
}

/// Returns whether the call subtracts bytes here, as calls of a `Sampled` do.
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

    /// A thread starts as far from a place as any byte.
    #[test]
    fn a_thread_begins_as_far_off_as_any_byte() {
        let first = || !pass(1_000) && is_due(1_000);
        let threads = if cfg!(miri) { 10 } else { 1_000 };
        let met = (0..threads).filter(|_| std::thread::spawn(first).join().expect("no panic"));
        // One in 66, not every one.
        let met = met.count();
        assert!(met < 45 && (met > 0 || cfg!(miri)), "{met} of {threads}");
    }

    /// A handler in the middle samples nothing and subtracts nothing.
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
