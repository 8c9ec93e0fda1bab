//! A limit on how many may be inside at once: a count in one word, and a line of waiters outside.
//!
//! # The protocol
//! - While there are no waiters the way is **open**: entering and leaving exchange the word, and
//!   take no lock.
//! - A caller that finds no place takes the line's lock, joins it, **closes** the way, and only
//!   then [serves](Slots::serve) the line. A leave comes either before the close, so that its place
//!   is seen, or it finds the way closed, takes the lock, and serves the line itself. So no waiter
//!   is left beside a free place.
//! - While the way is closed, the count changes only with the lock held: no caller overtakes the
//!   line, and the line decides which waiter gets a place that becomes free.
//!
//! The protocol needs only the order of changes to one word, which every exchange has. A caller
//! that enters sees all writes of those that left before.
//!
//! A semaphore with a list of its own was rejected: the line exists to decide the order in which
//! waiters go in, and that order changes while they wait.

#[cfg(all(test, loom))]
mod loom_models;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of places.
pub const SLOTS_MAX: u32 = (1 << 31) - 1;

/// The waiters, in the order in which they go in. Guarded by a lock of its owner.
pub trait Line {
    /// Returns whether a waiter could go in.
    fn is_ready(&self) -> bool;
    /// Lets the next waiter in, for which a place was taken.
    fn admit(&mut self);
    /// Returns whether a caller that comes or leaves must check the line: true at least while it
    /// has a waiter.
    fn is_needed(&self) -> bool;
}

/// The places: see the [module](self).
#[derive(Debug)]
pub struct Slots {
    /// Bits: 0..32 how many are inside, 32..63 how many may be, 63 whether the way is closed.
    /// Writers: while it is open, threads that enter or leave; otherwise only with the line's lock
    /// held.
    word: AtomicU64,
}

const CLOSED: u64 = 1 << 63;
const LIMIT: u64 = (SLOTS_MAX as u64) << 32;

fn inside(word: u64) -> u32 {
    word as u32
}

fn limit(word: u64) -> u32 {
    ((word & LIMIT) >> 32) as u32
}

impl Slots {
    /// Makes `limit` free places, at most [`SLOTS_MAX`].
    #[must_use]
    pub fn new(limit: u32) -> Slots {
        Slots { word: AtomicU64::new(u64::from(limit.min(SLOTS_MAX)) << 32) }
    }

    /// Enters if there is a place and the way is open: one exchange.
    #[inline]
    #[must_use]
    pub fn try_enter(&self) -> bool {
        // Relaxed: only the exchange decides.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 || inside(word) >= limit(word) {
                return false;
            }
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            // Acquire: pairs with the Release of callers that left, whose place this may be.
            // Relaxed on failure: as above.
            match self.word.compare_exchange_weak(word, word + 1, success, failure) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves if the way is open: one exchange. Otherwise the caller takes the line's lock,
    /// [leaves](Self::leave), and [serves](Self::serve) the line.
    #[inline]
    #[must_use]
    pub fn try_leave(&self) -> bool {
        // Relaxed: as in `try_enter`.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return false;
            }
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            // Release: pairs with the Acquire of the caller that gets this place. Relaxed on
            // failure: as above.
            match self.word.compare_exchange_weak(word, word - 1, success, failure) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves, with the line's lock held.
    pub fn leave(&self) {
        // Release: as in `try_leave`; the next caller may enter after the way is open again.
        self.word.fetch_sub(1, Ordering::Release);
    }

    /// Lets in every waiter that can go in. The line's lock is held. A caller that has just joined
    /// the line must [close](Self::close) the way first.
    pub fn serve(&self, line: &mut impl Line) {
        while line.is_ready() && self.enter() {
            line.admit();
        }
        if !line.is_needed() {
            // Relaxed: every caller inside has left by an exchange, or will.
            self.word.fetch_and(!CLOSED, Ordering::Relaxed);
        }
    }

    /// Makes every caller take the lock from now on, which the caller of this function holds.
    /// Returns how many are inside, and how many may be: until the lock is released, no other
    /// thread changes that.
    pub fn close(&self) -> (u32, u32) {
        // Relaxed: exchanges of this word decide what follows.
        let word = self.word.fetch_or(CLOSED, Ordering::Relaxed);
        (inside(word), limit(word))
    }

    /// Sets how many may be inside. The line's lock is held, and the caller must then
    /// [serve](Self::serve) the line. Callers inside stay.
    pub fn set_limit(&self, limit: u32) {
        let limit = u64::from(limit.min(SLOTS_MAX)) << 32;
        let with = |word: u64| Some(word & !LIMIT | limit);
        // Relaxed, both: it is only a number.
        _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Returns how many are inside, and how many may be.
    #[must_use]
    pub fn used(&self) -> (u32, u32) {
        // Relaxed: they are only numbers.
        let word = self.word.load(Ordering::Relaxed);
        (inside(word), limit(word))
    }

    /// Takes a place if there is one. The lock is held, and the way is closed.
    fn enter(&self) -> bool {
        let take = |word: u64| (inside(word) < limit(word)).then_some(word + 1);
        // Acquire and, on failure, Relaxed: as in `try_enter`.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A line of this many waiters.
    struct Waiting(u32);

    impl Line for Waiting {
        fn is_ready(&self) -> bool {
            self.0 > 0
        }

        fn admit(&mut self) {
            self.0 -= 1;
        }

        fn is_needed(&self) -> bool {
            self.0 > 0
        }
    }

    /// No caller overtakes the waiters, and the way opens behind the last of them.
    #[test]
    fn nobody_overtakes_those_that_wait() {
        let slots = Slots::new(2);
        assert!(slots.try_enter() && slots.try_enter() && !slots.try_enter());
        let mut waiting = Waiting(1);
        slots.close();
        slots.serve(&mut waiting);
        assert!(!slots.try_leave(), "somebody waits for the place");
        slots.leave();
        assert!(!slots.try_enter(), "the place is theirs");
        slots.serve(&mut waiting);
        assert_eq!((waiting.0, slots.used()), (0, (2, 2)));
        assert!(slots.try_leave() && slots.try_enter());
    }

    /// A lower limit revokes nothing; a higher one serves the waiters.
    #[test]
    fn a_lower_limit_revokes_nothing() {
        let slots = Slots::new(SLOTS_MAX + 1);
        assert!(slots.try_enter() && slots.try_enter());
        slots.set_limit(1);
        assert_eq!(slots.used(), (2, 1));
        assert!(!slots.try_enter() && slots.try_leave() && !slots.try_enter());
        let mut waiting = Waiting(2);
        slots.close();
        slots.set_limit(2);
        slots.serve(&mut waiting);
        assert_eq!((waiting.0, slots.used()), (1, (2, 2)));
    }
}
