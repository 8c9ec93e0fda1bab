//! The count, and its changes of mode: between counting per CPU and counting in one word.
//!
//! # The protocol
//! To **stop** counting per CPU: close the gate; issue one barrier; fold (add the sum of the CPUs'
//! words and take the bias away, in one operation). A sequence tests the gate in the section that
//! commits, so after the barrier every one has committed and is visible, or starts again and finds
//! the gate closed: nothing is added to a word that was summed.
//!
//! To **start**: add the bias, less what the words hold; open the gate. Words are never written
//! from elsewhere, not even to zero them: a sequence's plain add would bring the old value back,
//! and on ARM a sequence could load its word before the gate and the zeroing after. The difference
//! of two sums needs neither a store nor a second barrier.
//!
//! The lock is *not* held across the barrier, so that many references share one, and so that a fork
//! hardly ever copies a held lock. Between closing and folding the state is "closed and biased",
//! which says all that is needed to finish the job: a thread that wants to change the mode in that
//! state issues a barrier of its own and folds. The second one finds that it is done: by the bias,
//! or by the number of the opening, if the gate was opened and closed again in between and the
//! barrier was issued too early for that.

use std::ops::BitOr;

use crate::fork_lock::{ForkLock, Held};
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};

/// Words, one per CPU, that take adds while they are open. Changed with the switch's lock held.
pub(super) trait Slots {
    /// Tries once to add the constant 1 or -1, if open. Returns whether it was done.
    fn add_one<const N: i32>(&self) -> bool;
    /// Tries once to add `n`, if open. Returns whether it was done.
    fn add(&self, n: i64) -> bool;
    /// Adds `n`, if open, after one of the above did not. Returns whether it was done.
    fn add_slow(&self, n: i64) -> bool;
    /// Returns whether adds are taken.
    fn is_open(&self) -> bool;
    /// Prepares to open, and returns what the words sum up to already. In atomic mode.
    fn prepare(&self) -> i64;
    /// Takes adds from now on. Biased.
    fn open(&self);
    /// Takes no adds after the next barrier. Biased.
    fn close(&self);
    /// Returns whether [`barrier`](Slots::barrier) does anything. One serves all slots of a process
    /// that are closed by then.
    fn needs_barrier(&self) -> bool;
    /// Waits until no add is under way that found it open.
    fn barrier(&self);
    /// Sums the words. Closed, and after the barrier.
    fn collect(&self) -> i64;
}

/// A reference count that changes between its two modes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Switch<S> {
    pub(super) slots: S,
    pub(super) count: Count,
    /// Guards `slots`' mode, `opened`, the death and the bias in `count`.
    lock: ForkLock,
    /// Bits: [`STICKY`], and above it how often the slots were opened. Wraps around; a barrier does
    /// not take that long. One word for both, since every group has one. Writer: the lock's holder.
    opened: AtomicU32,
}

/// Stay in atomic mode whatever is revived.
const STICKY: u32 = 1;
/// One opening more.
const OPENED: u32 = 2;

/// What must be finished after a barrier: the number of the opening that was closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping(u32);

/// What a change of mode found out on the way, for the caller to act on after it let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct After {
    /// The last reference is gone: release.
    pub(super) last: bool,
    /// There were more puts than gets: report.
    pub(super) below: bool,
}

impl From<Put> for After {
    fn from(put: Put) -> After {
        After { last: put == Put::Last, below: put == Put::Below }
    }
}

impl BitOr for After {
    type Output = After;

    fn bitor(self, other: After) -> After {
        After { last: self.last | other.last, below: self.below | other.below }
    }
}

impl<S: Slots> Switch<S> {
    /// Starts per CPU unless `sticky` or `dead`, with one reference unless `dead`.
    pub(super) fn new(slots: S, sticky: bool, dead: bool) -> Switch<S> {
        let switch = Switch {
            slots,
            count: Count::new(u32::from(!dead), dead),
            lock: ForkLock::new(),
            opened: AtomicU32::new(if sticky { STICKY } else { 0 }),
        };
        if !dead {
            switch.open_if_wanted(&switch.lock.lock());
        }
        switch
    }

    /// Takes a reference. False when there was none to go by: nothing was taken.
    ///
    /// The real count has the first half in `Core::get`, and the second in a function of its own,
    /// as those below: in line, its registers would be saved by the first half too.
    #[cfg(loom)]
    pub(super) fn get_one(&self) -> bool {
        self.slots.add_one::<1>() || self.get_slow(1)
    }

    /// The rest of a get, of `n` references, that the slots did not take at once.
    #[inline]
    pub(super) fn get_slow(&self, n: u32) -> bool {
        let n = i64::from(n);
        self.slots.add_slow(n) || self.count_since_opening().get(n)
    }

    #[inline(always)]
    pub(super) fn try_get_one(&self, live: bool) -> bool {
        self.slots.add_one::<1>() || self.try_get_slow(1, live)
    }

    #[inline(always)]
    #[cfg_attr(loom, expect(dead_code, reason = "models count by one"))]
    pub(super) fn try_get(&self, n: u32, live: bool) -> bool {
        self.slots.add(n.into()) || self.try_get_slow(n, live)
    }

    #[inline(never)]
    fn try_get_slow(&self, n: u32, live: bool) -> bool {
        let n = i64::from(n);
        self.slots.add_slow(n) || self.count_since_opening().try_get(n, live)
    }

    #[inline(always)]
    pub(super) fn put_one(&self) -> Put {
        if self.slots.add_one::<-1>() { Put::Held } else { self.put_slow(1) }
    }

    /// The rest of a put, of `n` references, that the slots did not take at once.
    #[inline]
    pub(super) fn put_slow(&self, n: u32) -> Put {
        let n = i64::from(n);
        if self.slots.add_slow(-n) { Put::Held } else { self.count_since_opening().put(n) }
    }

    /// Returns the count, for a thread that holds no lock.
    ///
    /// A thread that the slots served since they were opened last knows of that opening, but is not
    /// ordered after it: a sequence loads its gate by a plain load, and an add to a row is Release.
    /// Without more, it could find the count of the life before, at zero, and take the reference
    /// that it holds for none. To order the adds would cost every one of them; this costs those
    /// that the slots refuse.
    #[inline]
    pub(super) fn count_since_opening(&self) -> &Count {
        // Acquire: pairs with the Release in `GatedWord::open` and in `rows::live`, which an add of
        // this thread's read from.
        fence(Ordering::Acquire);
        &self.count
    }

    /// The mistake of doing without that order.
    #[cfg(loom)]
    pub(super) fn get_one_unordered(&self) -> bool {
        self.slots.add_one::<1>() || self.slots.add_slow(1) || self.count.get(1)
    }

    /// Marks it dead and closes, unless it was dead (`None`). With `keep`, the initial reference
    /// remains for the caller to put.
    pub(super) fn begin_kill(&self, keep: bool) -> Option<(After, Option<Stopping>)> {
        let held = self.lock.lock();
        match self.count.kill(keep) {
            Kill::Twice => None,
            Kill::Done(put) => Some((After::from(put), self.close(&held))),
        }
    }

    /// Closes, to stay so until per-CPU mode is asked for.
    pub(super) fn begin_atomic(&self) -> Option<Stopping> {
        let held = self.lock.lock();
        // Relaxed: read with the lock held.
        self.opened.fetch_or(STICKY, Ordering::Relaxed);
        self.close(&held)
    }

    /// Changes to atomic mode, to stay there until per-CPU mode is asked for.
    pub(super) fn to_atomic(&self) -> After {
        let Some(stopping) = self.begin_atomic() else { return After::default() };
        self.slots.barrier();
        self.finish(stopping)
    }

    /// Folds what was closed, unless another thread did. After a barrier that was issued after the
    /// closing.
    pub(super) fn finish(&self, stopping: Stopping) -> After {
        let held = self.lock.lock();
        self.fold(&held, stopping)
    }

    /// The mistake of taking any barrier for that of the closing: folds whatever is closed.
    #[cfg(loom)]
    pub(super) fn finish_any(&self) -> After {
        let held = self.lock.lock();
        match self.unfinished(&held) {
            Some(stopping) => self.fold(&held, stopping),
            None => After::default(),
        }
    }

    /// Forgets that atomic mode was asked for, and opens unless it is dead, or no reference is left
    /// to count.
    pub(super) fn to_percpu(&self) -> After {
        let (held, after) = self.settle();
        // Relaxed: read with the lock held.
        self.opened.fetch_and(!STICKY, Ordering::Relaxed);
        if !self.count.is_dead() {
            self.open_if_wanted(&held);
        }
        after
    }

    /// Undoes a kill.
    pub(super) fn resurrect(&self) -> (Revival, After) {
        let (held, after) = self.settle();
        let revival = self.count.resurrect();
        if revival == Revival::Done {
            self.open_if_wanted(&held);
        }
        (revival, after)
    }

    /// Starts again from zero, if it is dead, at zero, and `restart` agrees. Returns whether it
    /// did.
    pub(super) fn reinit(&self, restart: impl FnOnce() -> bool) -> (bool, After) {
        let (held, after) = self.settle();
        let ready = self.count.is_dead() && self.count.exact() == Some(0);
        let done = ready && restart();
        if done {
            self.count.reinit();
            self.open_if_wanted(&held);
        }
        (done, after)
    }

    /// Finishes what a thread left between closing and folding, perhaps without end (in a fork's
    /// child).
    pub(super) fn help(&self) -> After {
        self.settle().1
    }

    /// Takes the lock when nothing is between closing and folding.
    fn settle(&self) -> (Held<'_>, After) {
        let mut after = After::default();
        loop {
            let held = self.lock.lock();
            let Some(stopping) = self.unfinished(&held) else { return (held, after) };
            drop(held);
            self.slots.barrier();
            let held = self.lock.lock();
            after = after | self.fold(&held, stopping);
            if self.unfinished(&held).is_none() {
                return (held, after);
            }
        }
    }

    fn unfinished(&self, _: &Held<'_>) -> Option<Stopping> {
        // A killer lets go of the lock with the slots closed, unless a fork left it behind in
        // between.
        if self.slots.is_open() && self.count.is_dead() {
            self.slots.close();
        }
        let unfinished = self.count.is_biased() && !self.slots.is_open();
        // Relaxed: with the lock held.
        unfinished.then(|| Stopping(self.opened.load(Ordering::Relaxed) & !STICKY))
    }

    fn close(&self, held: &Held<'_>) -> Option<Stopping> {
        if self.slots.is_open() {
            self.slots.close();
        }
        self.unfinished(held)
    }

    fn fold(&self, held: &Held<'_>, Stopping(opened): Stopping) -> After {
        if self.unfinished(held).is_some_and(|now| now.0 == opened) {
            After::from(self.count.fold(self.slots.collect()))
        } else {
            After::default()
        }
    }

    fn open_if_wanted(&self, _: &Held<'_>) {
        // Relaxed: with the lock held.
        if self.opened.load(Ordering::Relaxed) & STICKY != 0 || self.slots.is_open() {
            return;
        }
        let base = self.slots.prepare();
        if self.count.bias(base) {
            // Relaxed: with the lock held.
            self.opened.fetch_add(OPENED, Ordering::Relaxed);
            self.slots.open();
        }
    }
}

const DEAD: i64 = 1;
const ONE: i64 = 2;
/// Half of the distance to wrapping around; 2^60 references either way still look biased.
const BIAS: i64 = 1 << 62;
/// Far from zero and from the bias.
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
/// the word could be set, and confirmed, between the two. The count is above it, not below, so that
/// nothing that is added can carry into the flag.
///
/// Adding here is right in every mode: while the word is biased, it merely holds a part of the sum.
/// That is what a thread falls back on that cannot use the per-CPU words.
#[derive(Debug)]
pub(super) struct Count(AtomicI64);

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Put {
    /// Others hold references, or may.
    Held,
    /// It was the last reference: the caller releases.
    Last,
    /// There was none to put. Nothing was changed.
    Below,
}

/// What a kill found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    Done(Put),
    /// It is dead already. Nothing was changed.
    Twice,
}

/// What a resurrection found.
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

    /// Takes `n` references. False, with nothing changed, when there was none to go by.
    #[inline]
    pub(super) fn get(&self, n: i64) -> bool {
        // Not an add that is taken back: in between, a `try_get` would find a reference to go by.
        self.try_get(n, false)
    }

    /// Takes `n` references unless none is left, or, with `live`, it is dead.
    pub(super) fn try_get(&self, n: i64, live: bool) -> bool {
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word < ONE || (live && word & DEAD != 0) {
                return false;
            }
            let wanted = word + n * ONE;
            // Acquire: pairs with the Release in `reinit` and `resurrect`, whose caller's
            // preparations a successful lookup then sees. Relaxed on failure: the loop looks again.
            match self.0.compare_exchange_weak(word, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Puts `n` references.
    #[inline]
    pub(super) fn put(&self, n: i64) -> Put {
        // Release: pairs with the Acquire in `put_last`, `kill` and `fold`, so that what was done
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
        // Relaxed: takes back what was too many. In between no `try_get` succeeds that would not
        // have otherwise.
        self.0.fetch_add(n * ONE, Ordering::Relaxed);
        Put::Below
    }

    /// Marks it dead and, unless `keep`, puts the initial reference in the same step. With the lock
    /// held.
    pub(super) fn kill(&self, keep: bool) -> Kill {
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & DEAD != 0 {
                return Kill::Twice;
            }
            let (put, wanted) = match (word >> 1, keep) {
                (_, true) => (Put::Held, word + DEAD),
                // Somebody put the initial reference already.
                (..=0, false) => (Put::Below, word + DEAD),
                (1, false) => (Put::Last, word + DEAD - ONE),
                (2.., false) => (Put::Held, word + DEAD - ONE),
            };
            // AcqRel: as a put, and as the last one. Relaxed on failure: the loop looks again.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Kill::Done(put),
                Err(now) => word = now,
            }
        }
    }

    /// Undoes a kill while a reference is held. With the lock held.
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
            // AcqRel: Release pairs with `try_get`. Acquire: the state that the references left.
            // Relaxed on failure: the loop looks again.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Revival::Done,
                Err(now) => word = now,
            }
        }
    }

    /// Starts again with one reference. With the lock held, found dead and at zero.
    pub(super) fn reinit(&self) {
        // An add, not an exchange with what was found: a put too many may be about to take itself
        // back, and the life has begun already.
        // AcqRel: Release pairs with `try_get`; Acquire: the state that the last put left.
        self.0.fetch_add(ONE - DEAD, Ordering::AcqRel);
    }

    /// Starts to count per CPU: adds the bias, less what the CPUs' words hold already. False if
    /// no reference is held: zero is final. With the lock held, in atomic mode.
    pub(super) fn bias(&self, base: i64) -> bool {
        let add = BIAS.wrapping_sub(base.wrapping_mul(ONE));
        // Relaxed: the exchange below decides.
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !(ONE..PIN / 2).contains(&word) {
                return false;
            }
            let wanted = word.wrapping_add(add);
            // AcqRel: keeps the chain of puts; ordered before the gate opens by the Release there.
            // Relaxed on failure: the loop looks again.
            match self.0.compare_exchange_weak(word, wanted, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Adds what the CPUs counted and takes the bias away, in one step: no part of the sum is ever
    /// visible without the rest, so that zero cannot be met on the way. With the lock held, biased.
    pub(super) fn fold(&self, sum: i64) -> Put {
        let add = sum.wrapping_mul(ONE).wrapping_sub(BIAS);
        // AcqRel: Release hands on what the barrier (or the death of the locked rows) showed of
        // other CPUs' puts; Acquire: it may be the last.
        let after = self.0.fetch_add(add, Ordering::AcqRel).wrapping_add(add);
        match after >> 1 {
            0 => Put::Last,
            1.. => Put::Held,
            ..=-1 => {
                // Relaxed: orders nothing. Leaks rather than releases in use.
                self.0.fetch_add(PIN, Ordering::Relaxed);
                Put::Below
            }
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        // Acquire: who finds it dead sees what the killer did before.
        self.0.load(Ordering::Acquire) & DEAD != 0
    }

    pub(super) fn is_biased(&self) -> bool {
        // Relaxed: changes with the lock held, which orders it for those that need to know.
        self.0.load(Ordering::Relaxed) >= BIAS / 2
    }

    /// The count in atomic mode, `None` while it is counted per CPU.
    pub(super) fn exact(&self) -> Option<i64> {
        // Acquire: who finds zero sees what was done under the references.
        let word = self.0.load(Ordering::Acquire);
        (word < BIAS / 2).then_some(word >> 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
        let rounds = if cfg!(miri) { 50 } else { 200_000 };
        std::thread::scope(|scope| {
            let misuse = scope.spawn(|| (0..rounds).for_each(|_| assert!(!count.get(1))));
            while !misuse.is_finished() {
                assert!(!count.try_get(1, false), "there is none to take");
            }
        });
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

    #[test]
    fn a_life_starts_although_misuse_is_about_to_take_itself_back() {
        let count = Count::new(0, true);
        // Relaxed, here and below: one thread, that stands for two.
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
        assert_eq!(count.put(1), Put::Last);
        assert_eq!(Count::new(0, false).kill(false), Kill::Done(Put::Below));
    }
}
