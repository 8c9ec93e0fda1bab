//! The word that knows whether a reference is left.

use crate::sync::atomic::{AtomicI64, Ordering, fence};

const DEAD: i64 = 1;
const ONE: i64 = 2;
/// Half of the distance to wrapping around; 2^60 references either way still look biased.
const BIAS: i64 = 1 << 62;
/// A value far from zero and from the bias.
const PIN: i64 = 1 << 60;

/// The word that knows whether a reference is left: count, death and bias in one atomic location.
///
/// ```text
/// bit 0        DEAD: killed. Set and cleared under the lock; no other operation touches it.
/// bits 1..64   the count, signed. Any thread adds.
///                around 0     atomic mode: exact, and zero means that no reference is held
///                around 2^59  pinned: more puts than gets were found, nothing is certain any more
///                around 2^61  biased: references are (also) counted per CPU, or are being summed
/// ```
///
/// Death is *in* the word because `tryget_live` must test it and count in one step: a flag beside
/// the word could be set, and confirmed, between the two. The count occupies the bits above it, not
/// below, so that no addition can carry into the flag.
///
/// Adding here is correct in every mode: while the word is biased, it merely holds a part of the
/// sum. A thread that cannot use the per-CPU words falls back on this one.
#[derive(Debug)]
pub(super) struct Count(AtomicI64);

/// The effect of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Put {
    /// Other references are held, or may be.
    Held,
    /// This was the last reference: the caller releases.
    Last,
    /// There was no reference to put. Nothing was changed.
    Below,
}

/// The state that a kill found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    Done(Put),
    /// The count was dead already. Nothing was changed.
    Twice,
}

/// The state that a resurrection found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revival {
    Done,
    /// The last reference is gone: there is nothing to take back.
    TooLate,
    NotDead,
}

impl Count {
    /// Starts in atomic mode.
    pub(super) fn new(references: u32, dead: bool) -> Count {
        Count(AtomicI64::new(i64::from(references) * ONE + i64::from(dead) * DEAD))
    }

    /// Takes `n` references. If no reference was held, changes nothing and returns false.
    #[inline]
    pub(super) fn get(&self, n: i64) -> bool {
        // Not an add that is then undone: in between, a `try_get` would find a reference held and
        // succeed.
        self.try_get(n, false)
    }

    /// Takes `n` references unless none is left or, with `live`, the count is dead.
    pub(super) fn try_get(&self, n: i64, live: bool) -> bool {
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word < ONE || (live && word & DEAD != 0) {
                return false;
            }
            let wanted = word + n * ONE;
            // Acquire: pairs with the Release in `reinit` and `resurrect`, so that a thread that
            // takes a reference of a new life does not find the previous life's release. Relaxed on
            // failure: the loop retries.
            match self.0.compare_exchange_weak(word, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Puts `n` references.
    #[inline]
    pub(super) fn put(&self, n: i64) -> Put {
        // Release: pairs with the Acquire in `put_last`, `kill` and `fold`, so that everything done
        // under this reference happens before the release.
        let before = self.0.fetch_sub(n * ONE, Ordering::Release) >> 1;
        if before > n {
            return Put::Held;
        }
        self.put_last(before, n)
    }

    #[cold]
    fn put_last(&self, before: i64, n: i64) -> Put {
        if before == n {
            // Acquire: pairs with the Release of every other put; read-modify-writes in between
            // keep the chain.
            fence(Ordering::Acquire);
            return Put::Last;
        }
        // Relaxed: undoes the surplus put. In between, no `try_get` succeeds that would otherwise
        // have failed.
        self.0.fetch_add(n * ONE, Ordering::Relaxed);
        Put::Below
    }

    /// Marks the count dead and, unless `keep`, puts the initial reference in the same step. The
    /// lock is held.
    pub(super) fn kill(&self, keep: bool) -> Kill {
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & DEAD != 0 {
                return Kill::Twice;
            }
            let (put, wanted) = match (word >> 1, keep) {
                (_, true) => (Put::Held, word + DEAD),
                // The initial reference was put already.
                (..=0, false) => (Put::Below, word + DEAD),
                (1, false) => (Put::Last, word + DEAD - ONE),
                (2.., false) => (Put::Held, word + DEAD - ONE),
            };
            // AcqRel: Release as for a put, Acquire as for the last one. Relaxed on failure: the
            // loop retries.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Kill::Done(put),
                Err(now) => word = now,
            }
        }
    }

    /// Undoes a kill while a reference is held. The lock is held.
    pub(super) fn resurrect(&self) -> Revival {
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & DEAD == 0 {
                return Revival::NotDead;
            }
            if word < ONE {
                return Revival::TooLate;
            }
            let wanted = word - DEAD + ONE;
            // AcqRel: Release pairs with the Acquire in `try_get`. Acquire: sees the state that the
            // references left. Relaxed on failure: the loop retries.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Revival::Done,
                Err(now) => word = now,
            }
        }
    }

    /// Starts again with one reference. The lock is held, and the count was found dead and at zero.
    pub(super) fn reinit(&self) {
        // An add, not an exchange with the value found: a surplus put may be about to undo itself,
        // and the life has already begun. AcqRel: Release pairs with the Acquire in `try_get`;
        // Acquire: sees the state that the last put left.
        self.0.fetch_add(ONE - DEAD, Ordering::AcqRel);
    }

    /// Starts to count per CPU: adds the bias, less what the CPUs' words already hold. Returns
    /// false if no reference is held: zero is final. The lock is held, and the count is in atomic
    /// mode.
    pub(super) fn bias(&self, base: i64) -> bool {
        let add = BIAS.wrapping_sub(base.wrapping_mul(ONE));
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !(ONE..PIN / 2).contains(&word) {
                return false;
            }
            let wanted = word.wrapping_add(add);
            // AcqRel: keeps the chain of puts. The Release of the opening orders it before the gate
            // opens. Relaxed on failure: the loop retries.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Adds what the CPUs counted and removes the bias, in one step: no part of the sum is ever
    /// visible without the rest, so zero cannot appear on the way. The lock is held, and the count
    /// is biased.
    pub(super) fn fold(&self, sum: i64) -> Put {
        let add = sum.wrapping_mul(ONE).wrapping_sub(BIAS);
        // AcqRel: Release passes on the puts of other CPUs that the barrier (or the death of the
        // locked rows) showed; Acquire: this may be the last put.
        let after = self.0.fetch_add(add, Ordering::AcqRel).wrapping_add(add);
        match after >> 1 {
            0 => Put::Last,
            1.. => Put::Held,
            ..=-1 => {
                // Relaxed: orders nothing. This leaks the object rather than releasing it in use.
                self.0.fetch_add(PIN, Ordering::Relaxed);
                Put::Below
            }
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        // Acquire: a thread that finds it dead sees everything that the killer did before.
        self.0.load(Ordering::Acquire) & DEAD != 0
    }

    pub(super) fn is_biased(&self) -> bool {
        // Relaxed: it changes only with the lock held, and the lock orders it for threads that
        // depend on it.
        self.0.load(Ordering::Relaxed) >= BIAS / 2
    }

    /// Returns the count in atomic mode, `None` while references are counted per CPU.
    pub(super) fn exact(&self) -> Option<i64> {
        // Acquire: a thread that finds zero sees everything that was done under the references.
        let word = self.0.load(Ordering::Acquire);
        (word < BIAS / 2).then_some(word >> 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::witness::Witness;

    #[test]
    fn nothing_that_is_counted_reaches_the_flag() {
        let count = Count::new(1, false);
        assert!(count.get(5) && count.try_get(3, true));
        assert_eq!(count.kill(false), Kill::Done(Put::Held));
        assert_eq!((count.exact(), count.is_dead()), (Some(8), true));
        assert_eq!(count.kill(false), Kill::Twice);
        assert!(!count.try_get(1, true) && count.try_get(1, false));
        assert_eq!(count.put(10), Put::Below);
        assert_eq!(count.put(9), Put::Last);
        assert_eq!(count.put(1), Put::Below);
        assert!(!count.get(1) && !count.try_get(1, false));
        assert_eq!((count.exact(), count.is_dead()), (Some(0), true));
        count.reinit();
        assert_eq!((count.exact(), count.is_dead()), (Some(1), false));
    }

    #[test]
    fn the_bias_covers_words_that_start_anywhere() {
        for base in [0, 1, -1, 1 << 40, -(1 << 40), i64::MAX, i64::MIN] {
            let count = Count::new(3, false);
            assert!(count.bias(base));
            assert!(count.is_biased() || base == i64::MAX || base == i64::MIN);
            assert_eq!(count.fold(base.wrapping_add(4)), Put::Held);
            assert_eq!(count.exact(), Some(7), "{base}");
        }
    }

    #[test]
    fn a_get_at_zero_lets_nobody_else_in_stress() {
        let count = Count::new(0, true);
        let (rounds, witness) = (if cfg!(miri) { 50 } else { 200_000 }, Witness::new());
        std::thread::scope(|scope| {
            let misuse = scope.spawn(|| {
                let rounds = (0..).take_while(|&n| witness.goes_on(n, rounds));
                rounds.for_each(|_| assert!(!count.get(1)));
            });
            while !misuse.is_finished() {
                assert!(!count.try_get(1, false), "there is none to take");
                witness.met(!misuse.is_finished());
            }
        });
        witness.assert_met();
        assert_eq!(count.exact(), Some(0));
    }

    #[test]
    fn more_puts_than_gets_pin() {
        let count = Count::new(1, false);
        assert!(count.bias(0));
        assert_eq!(count.fold(-4), Put::Below);
        assert_eq!(count.put(1), Put::Held);
        assert!(!count.bias(0), "stays as it is");
    }

    /// A life starts although a misuse is about to undo itself.
    #[test]
    fn a_life_starts_while_misuse_is_undone() {
        let count = Count::new(0, true);
        // Relaxed, here and below: one thread stands for two.
        count.0.fetch_sub(ONE, Ordering::Relaxed);
        count.reinit();
        count.0.fetch_add(ONE, Ordering::Relaxed);
        assert_eq!((count.exact(), count.is_dead()), (Some(1), false));
    }

    #[test]
    fn a_kill_is_a_put_and_can_be_the_last() {
        let count = Count::new(1, false);
        assert_eq!(count.kill(false), Kill::Done(Put::Last));
        assert_eq!(count.resurrect(), Revival::TooLate);
        let count = Count::new(1, false);
        assert_eq!(count.resurrect(), Revival::NotDead);
        assert_eq!(count.kill(true), Kill::Done(Put::Held));
        assert_eq!((count.exact(), count.is_dead()), (Some(1), true));
        assert_eq!(count.put(1), Put::Last);
        let count = Count::new(0, false);
        assert_eq!(count.kill(false), Kill::Done(Put::Below));
        assert_eq!((count.exact(), count.is_dead()), (Some(0), true));
    }
}
