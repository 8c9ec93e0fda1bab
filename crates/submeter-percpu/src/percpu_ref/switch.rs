//! Changes of mode: between counting per CPU and counting in one word.
//!
//! # The protocol
//! To **stop** counting per CPU: close the gate; issue one barrier; fold (add the sum of the CPUs'
//! words and remove the bias, in one operation). A sequence tests the gate in the section that
//! commits, so after the barrier every sequence has either committed and is visible, or restarts
//! and finds the gate closed: nothing is added to a word that was summed.
//!
//! To **start**: add the bias, less what the words hold; open the gate. Words are never written
//! from another CPU, not even to zero them: a sequence's plain add would bring the old value back,
//! and on ARM a sequence could load its word before the gate and the zeroing after. The difference
//! of two sums needs neither a store nor a second barrier.
//!
//! The lock is *not* held across the barrier, so that many references share one, and so that a fork
//! hardly ever copies a held lock. Between closing and folding the state is "closed and biased",
//! which is all that is needed to finish the job: a thread that wants to change the mode in that
//! state issues a barrier of its own and folds. The second thread finds the work done: by the bias,
//! or by the number of the opening if the gate was opened and closed again in between, in which
//! case its barrier was issued too early for the second closing.

use std::ops::BitOr;

use super::count::{Count, Kill, Put, Revival};
use crate::fork_lock::{ForkLock, Held};
use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// Words, one per CPU, that take adds while they are open. The mode is changed with the switch's
/// lock held.
pub(super) trait Slots {
    /// Tries once to add the constant 1 or -1, if open. Returns whether it was done.
    fn add_one<const N: i32>(&self) -> bool;
    /// Tries once to add `n`, if open. Returns whether it was done.
    fn add(&self, n: i64) -> bool;
    /// Adds `n`, if open, after one of the methods above did not. Returns whether it was done.
    fn add_slow(&self, n: i64) -> bool;
    /// Returns whether adds are taken.
    fn is_open(&self) -> bool;
    /// Prepares to open, and returns the current sum of the words. The count is in atomic mode.
    fn prepare(&self) -> i64;
    /// Takes adds from now on. The count is biased.
    fn open(&self);
    /// Takes no adds after the next barrier. The count is biased.
    fn close(&self);
    /// Returns whether [`barrier`](Slots::barrier) does anything. One barrier serves all slots of
    /// the process that are closed by then.
    fn needs_barrier(&self) -> bool;
    /// Waits until no add that found the slots open is under way.
    fn barrier(&self);
    /// Sums the words. The slots are closed, and the barrier has been issued.
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
    /// Bits: [`STICKY`], and above it how often the slots were opened. That number wraps around,
    /// but no barrier takes that long. One word holds both, since every group has one. Writer: the
    /// lock's holder.
    opened: AtomicU32,
}

/// The count stays in atomic mode across revivals.
const STICKY: u32 = 1;
/// One opening.
const OPENED: u32 = 2;

/// The work that remains after a barrier: the number of the opening that was closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping(u32);

/// The findings of a change of mode, on which the caller acts after it has released the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct After {
    /// The last reference is gone: the caller releases.
    pub(super) last: bool,
    /// There were more puts than gets: the caller reports it.
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
    /// Starts counting per CPU unless `sticky` or `dead`, with one reference unless `dead`.
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

    /// Takes a reference. If none was held, takes nothing and returns false.
    ///
    /// The real count has the first half in `Core::get` and the second in a separate function, like
    /// those below: inlined, it would make the first half save its registers too.
    #[cfg(loom)]
    pub(super) fn get_one(&self) -> bool {
        self.slots.add_one::<1>() || self.get_slow(1)
    }

    /// Completes a get of `n` references that the slots did not take at once.
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

    /// Completes a put of `n` references that the slots did not take at once.
    #[inline]
    pub(super) fn put_slow(&self, n: u32) -> Put {
        let n = i64::from(n);
        if self.slots.add_slow(-n) { Put::Held } else { self.count_since_opening().put(n) }
    }

    /// Returns the count, for a thread that holds no lock.
    ///
    /// A thread whose sequence committed since the gate was last opened knows of that opening, but
    /// is not ordered after it: the sequence reads the gate with a plain load. Without the fence,
    /// the thread could find the count of the previous life, at zero, and conclude that the
    /// reference it holds does not exist. Ordering the sequences would cost every one of them; the
    /// fence costs only those that are refused.
    ///
    /// A thread that receives such a reference is ordered by the handover, which orders the plain
    /// load too: on every machine that has sequences, if one thread has seen a store and then
    /// passes a message to another, the other sees the store too.
    #[inline]
    pub(super) fn count_since_opening(&self) -> &Count {
        // Acquire: pairs with the Release in `GatedWord::open`, from which a sequence of this
        // thread read. (Rows need none: their adds are Acquire.)
        fence(Ordering::Acquire);
        &self.count
    }

    /// The mistake of omitting that order.
    #[cfg(loom)]
    pub(super) fn get_one_unordered(&self) -> bool {
        self.slots.add_one::<1>() || self.slots.add_slow(1) || self.count.get(1)
    }

    /// Marks the count dead and closes the slots, unless it was already dead (`None`). With `keep`,
    /// the initial reference remains for the caller to put.
    pub(super) fn begin_kill(&self, keep: bool) -> Option<(After, Option<Stopping>)> {
        let held = self.lock.lock();
        match self.count.kill(keep) {
            Kill::Twice => None,
            Kill::Done(put) => Some((After::from(put), self.close(&held))),
        }
    }

    /// Closes the slots, and keeps them closed until per-CPU mode is requested.
    pub(super) fn begin_atomic(&self) -> Option<Stopping> {
        let held = self.lock.lock();
        // Relaxed: read with the lock held.
        self.opened.fetch_or(STICKY, Ordering::Relaxed);
        self.close(&held)
    }

    /// Changes to atomic mode, and stays there until per-CPU mode is requested.
    pub(super) fn to_atomic(&self) -> After {
        let Some(stopping) = self.begin_atomic() else { return After::default() };
        self.slots.barrier();
        self.finish(stopping)
    }

    /// Folds a closed count unless another thread already did. The caller has issued a barrier
    /// after the closing.
    pub(super) fn finish(&self, stopping: Stopping) -> After {
        let held = self.lock.lock();
        self.fold(&held, stopping)
    }

    /// The mistake of accepting any barrier as that of the closing: folds whatever is closed.
    #[cfg(loom)]
    pub(super) fn finish_any(&self) -> After {
        let held = self.lock.lock();
        match self.unfinished(&held) {
            Some(stopping) => self.fold(&held, stopping),
            None => After::default(),
        }
    }

    /// Forgets that atomic mode was requested, and opens unless the count is dead or no reference
    /// is left to count.
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

    /// Starts again if the count is dead and at zero, and `restart` agrees. Returns whether it did.
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

    /// Finishes the change that a thread left between closing and folding, perhaps for good (in a
    /// forked child).
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
        // A killer releases the lock with the slots closed, unless a fork left it behind in
        // between.
        if self.slots.is_open() && self.count.is_dead() {
            self.slots.close();
        }
        let unfinished = self.count.is_biased() && !self.slots.is_open();
        // Relaxed: the lock is held.
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
        // Relaxed: the lock is held.
        if self.opened.load(Ordering::Relaxed) & STICKY != 0 || self.slots.is_open() {
            return;
        }
        let base = self.slots.prepare();
        if self.count.bias(base) {
            // Relaxed: the lock is held.
            self.opened.fetch_add(OPENED, Ordering::Relaxed);
            self.slots.open();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use submeter_sys::{Backend, set_thread_number};

    use super::super::raw::AreaSlots;
    use super::*;
    use crate::Area;

    /// Returns an open count of the machine's own backend, and one of locked rows.
    fn open_on_each() -> [Switch<AreaSlots>; 2] {
        let rows = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
        [Area::common().expect("an area"), &rows]
            .map(|area| Switch::new(AreaSlots::new(area).expect("room"), false, false))
    }

    /// While a count is open, its references are counted where no other CPU counts.
    #[test]
    fn an_open_count_keeps_to_its_own_words() {
        // A sequence may be interrupted, though not each time.
        let one_of_many = |add: &dyn Fn() -> bool| (0..100).any(|_| add());
        for switch in open_on_each() {
            let slots = &switch.slots;
            assert!(slots.add_slow(1));
            if slots.needs_barrier() {
                assert!(one_of_many(&|| slots.add_one::<1>()) && one_of_many(&|| slots.add(2)));
            }
        }
    }

    /// A row is found by the number of a thread that has one of its own, and by the remainder for
    /// others.
    #[test]
    fn a_thread_without_a_row_of_its_own_counts() {
        let [_, rows] = open_on_each();
        set_thread_number(0);
        let own = rows.slots.row_by_hint().expect("there is a row of this number");
        assert!(std::ptr::eq(own, rows.slots.row_here().expect("it is open")));
        set_thread_number(submeter_sys::locked_rows() as u32);
        assert!(rows.slots.row_by_hint().is_none());
        assert!(rows.slots.row_here().is_some_and(|row| std::ptr::eq(row, own)));
    }

    /// References that are put by the slow path are gone.
    #[test]
    fn a_slow_put_undoes_a_slow_get() {
        for switch in open_on_each() {
            assert!(switch.get_slow(5));
            assert_eq!(switch.put_slow(3), Put::Held);
            assert_eq!(switch.to_atomic(), After::default());
            assert_eq!(switch.count.exact(), Some(3));
        }
    }

    /// A change back to per-CPU mode counts what was folded once, even if a fork ends it halfway.
    #[test]
    fn what_was_folded_is_not_counted_again() {
        for switch in open_on_each() {
            assert!(switch.get_slow(5));
            assert_eq!(switch.to_atomic(), After::default());
            assert!(switch.count.bias(switch.slots.prepare()));
            assert_eq!(switch.help(), After::default());
            assert_eq!(switch.count.exact(), Some(6));
        }
    }

    #[test]
    fn a_count_starts_again_only_dead_and_at_zero() {
        for switch in open_on_each() {
            assert!(!switch.reinit(|| panic!("it is alive")).0);
            assert!(switch.get_slow(1));
            assert!(switch.begin_kill(false).is_some());
            assert!(!switch.reinit(|| panic!("a reference is held")).0);
            assert_eq!(switch.put_slow(1), Put::Last);
            assert_eq!(switch.reinit(|| true), (true, After::default()));
        }
    }

    #[test]
    fn a_kill_folds_whatever_mode_comes_amid_it() {
        let [switch, _] = open_on_each();
        let (after, stopping) = switch.begin_kill(false).expect("alive");
        let stopping = stopping.expect("it counted per CPU");
        let late = switch.begin_atomic().expect("not folded yet");
        switch.slots.barrier();
        assert!((after | switch.finish(stopping)).last);
        assert_eq!(switch.finish(late), After::default());
    }

    #[test]
    fn an_early_barrier_ends_no_later_switch() {
        let [switch, _] = open_on_each();
        let early = switch.begin_atomic().expect("it counted per CPU");
        switch.slots.barrier();
        // Another thread ends it, opens and closes again.
        assert_eq!(switch.to_percpu(), After::default());
        let late = switch.begin_atomic().expect("it counted per CPU again");
        assert_eq!(switch.finish(early), After::default());
        assert!(switch.count.is_biased(), "sequences may be under way since the opening");
        switch.slots.barrier();
        assert_eq!(switch.finish(late), After::default());
        assert_eq!(switch.count.exact(), Some(1));
    }
}
