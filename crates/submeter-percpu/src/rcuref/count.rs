//! The count: one word, its zones, and the transitions between them.
//!
//! No memory is freed here and nothing is `unsafe`: callers decide what a transition means for the
//! object. That is why the models and the differential tests drive this type.

use crate::misuse::{self, Misuse, MisuseKind};
use crate::sync::atomic::{AtomicI32, Ordering};
use crate::sync::model_const_fn;

/// The highest valid count: 2^31 references.
pub(super) const MAXREF: u32 = 0x7FFF_FFFF;
/// The value at which an overflowed count is pinned: the middle of the saturation zone.
pub(super) const SATURATED: u32 = 0xA000_0000;
/// The floor of the dead zone.
pub(super) const RELEASED: u32 = 0xC000_0000;
/// The value at which a released count rests: the middle of the dead zone.
pub(super) const DEAD: u32 = 0xE000_0000;
/// No reference left, but not yet marked dead: one below the count of one reference.
pub(super) const NOREF: u32 = 0xFFFF_FFFF;
/// Number of operations in flight that every zone tolerates on both sides of its middle.
pub(super) const TOLERANCE: u32 = 0x1000_0000;

/// Misuse that a count noticed in addition to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The count left the valid zone upwards and is pinned for good.
    Saturated,
    /// This many more puts than gets.
    ExcessPuts(u32),
}

impl Notice {
    /// Reports the misuse of the count at `address`.
    pub(super) fn report(self, name: &str, address: usize) {
        let (kind, times) = match self {
            Notice::Saturated => (MisuseKind::Saturated, 1),
            Notice::ExcessPuts(times) => (MisuseKind::ExcessPut, times),
        };
        misuse::report_each(&Misuse { kind, times, name, address });
    }
}

/// A reference count in one word.
///
/// Bits: all of them, as a number in the zones above; a valid count is references − 1. Writers: any
/// thread, by read-modify-write only, except that `pin` stores into a zone that nothing leaves.
///
/// **The ledger.** Once dead, the word is `DEAD + gets in flight − unsettled excess puts`, exactly:
/// a failed get undoes its own increment, where a plain store of `DEAD` would lose what others
/// wrote in between. A value below `DEAD` therefore *proves* an excess put, and a putter that finds
/// the word dead needs only the sign of what its decrement returned. If it needed the whole number,
/// x86-64 would pay `lock xadd` on every put for the sake of the last one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Count(AtomicI32);

impl Count {
    model_const_fn! {
        /// Starts with `refs` references, 1 to 2^31; 0 wraps to `NOREF`.
        pub(super) fn new(refs: u32) -> Count {
            Count(AtomicI32::new(refs.wrapping_sub(1).cast_signed()))
        }
    }

    /// Takes a reference; false once dead.
    #[inline]
    pub(super) fn get(&self, notify: impl Fn(Notice)) -> bool {
        // Relaxed: a caller holds a reference, or found the pointer by an Acquire load, so the
        // object is already visible; success is only used under a branch on it.
        if self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1) >= 0 {
            return true;
        }
        self.get_slow(notify)
    }

    /// Takes a reference before every SeqCst access that follows; false once dead.
    #[inline]
    pub(super) fn get_ordered(&self, notify: impl Fn(Notice)) -> bool {
        // SeqCst: pairs with a remover that unlinks and then reads the count, both SeqCst: either
        // it sees this reference, or the caller's next SeqCst load sees the pointer gone.
        let negative = self.0.fetch_add(1, Ordering::SeqCst).wrapping_add(1) < 0;
        crate::sync::seq_cst_order();
        !negative || self.get_slow(notify)
    }

    /// Drops a reference; true for exactly one caller, which owns the object from then on.
    ///
    /// The word is accessed after the reference was given up: the caller keeps its memory alive.
    #[inline]
    pub(super) fn put(&self, notify: impl Fn(Notice)) -> bool {
        self.decrement() && self.put_slow(notify)
    }

    /// Does the first half of a put; `put_slow` must follow if it returns true.
    ///
    /// It is separate for the pointer interface, whose own slow half then joins `put_slow` out of
    /// line.
    #[inline]
    #[must_use]
    pub(super) fn decrement(&self) -> bool {
        // Release: pairs with the Acquire in `put_slow`, so that everything a holder did is visible
        // to the thread that frees. `+ -1`, not `- 1`: the former compiles to `lock dec` and a
        // branch on the sign, the latter to `lock xadd`.
        self.0.fetch_add(-1, Ordering::Release).wrapping_add(-1) < 0
    }

    /// Drops a reference that is not the last one, and does not access the word after that: the
    /// caller need not keep the memory alive. Returns false, with nothing changed, where the
    /// reference may be the last, or where another thread changed the word in between.
    #[inline]
    #[must_use]
    pub(super) fn put_one_of_many(&self) -> bool {
        // Relaxed: the exchange below decides.
        let now = self.0.load(Ordering::Relaxed);
        // Release: as in `decrement`. Relaxed on failure: nothing was done.
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        now > 0 && self.0.compare_exchange(now, now - 1, order, failed).is_ok()
    }

    /// Returns the current number of references; 0 when there are none or the count is dead.
    pub(super) fn read(&self) -> u32 {
        // SeqCst: pairs with `get_ordered`, so that a remover may trust it after an unlink.
        crate::sync::seq_cst_order();
        let now = self.0.load(Ordering::SeqCst).cast_unsigned();
        if now >= RELEASED { 0 } else { now + 1 }
    }

    /// Returns whether the object was released, which is final.
    pub(super) fn is_dead(&self) -> bool {
        // Acquire: pairs with the Release of the puts before the word was marked dead, so that a
        // thread that sees the death also sees what the holders did.
        let now = self.0.load(Ordering::Acquire).cast_unsigned();
        now >= RELEASED && now != NOREF
    }

    #[cold]
    #[inline(never)]
    fn get_slow(&self, notify: impl Fn(Notice)) -> bool {
        // Relaxed: only this word is read, and a thread never sees it older than its own increment.
        // Rereading is sound here (in `put_slow` it is not): a count never leaves the dead or the
        // saturated zone, so a later value means the same.
        let now = self.0.load(Ordering::Relaxed).cast_unsigned();
        if now <= MAXREF {
            return true;
        }
        if now < RELEASED {
            self.pin(now, notify);
            return true;
        }
        // Relaxed: undoes this call's increment; nothing was done under it.
        let now = self.0.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1).cast_unsigned();
        self.settle(now, notify);
        false
    }

    /// Runs for every put whose decrement returned a negative number; true for the last one.
    ///
    /// It assumes that this number is `NOREF`, the result of a balanced put, and never reads first:
    /// by the time of the read another put may have marked the word dead, and this put would look
    /// surplus. `loom_models.rs` keeps that mistake and the checker's verdict on it.
    #[cold]
    #[inline(never)]
    pub(super) fn put_slow(&self, notify: impl Fn(Notice)) -> bool {
        let (noref, dead) = (NOREF.cast_signed(), DEAD.cast_signed());
        // Acquire on success: pairs with the Release of every put, all of them earlier in this
        // word's release sequence, so that the owner may destroy what they wrote. Relaxed on
        // failure: the value only decides what this thread does with the word.
        let exchanged = self.0.compare_exchange(noref, dead, Ordering::Acquire, Ordering::Relaxed);
        let Err(now) = exchanged.map_err(i32::cast_unsigned) else { return true };
        if now > MAXREF && now < RELEASED {
            self.pin(now, notify);
        } else if now >= RELEASED {
            self.settle(now, notify);
        }
        // Otherwise a get revived the count in between, and its put will come here in turn.
        false
    }

    /// Brings a count in the saturation zone back to the middle of the zone; reports the first
    /// arrival.
    fn pin(&self, mut now: u32, notify: impl Fn(Notice)) {
        while now > MAXREF && now < SATURATED - TOLERANCE {
            let (from, to) = (now.cast_signed(), SATURATED.cast_signed());
            // Relaxed: a pinned object is never freed, so this orders nothing.
            match self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return notify(Notice::Saturated),
                Err(other) => now = other.cast_unsigned(),
            }
        }
        if now > MAXREF {
            // Relaxed: as above. A store overwrites other operations, which have no effect here.
            self.0.store(SATURATED.cast_signed(), Ordering::Relaxed);
        }
    }

    /// Removes excess puts from a dead count, and reports how many there were.
    ///
    /// The thread that decrements last comes here, so that a quiescent word is exactly `DEAD` and
    /// every excess put was reported once, though not always by the thread that made it.
    fn settle(&self, mut now: u32, notify: impl Fn(Notice)) {
        loop {
            let excess = match now {
                RELEASED..DEAD => DEAD - now,
                // Below `NOREF` without having been dead: a surplus put met the last one before the
                // mark of death. It is no longer known which reference was the last: the object
                // leaks.
                _ if now >= DEAD + TOLERANCE && now != NOREF => NOREF - now,
                _ => return,
            };
            let (from, to) = (now.cast_signed(), DEAD.cast_signed());
            // Relaxed: bookkeeping on a word that no longer orders anything.
            match self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return notify(Notice::ExcessPuts(excess)),
                Err(other) => now = other.cast_unsigned(),
            }
        }
    }

    /// Creates a count with any value in the zones.
    #[cfg(test)]
    pub(super) fn at(word: u32) -> Count {
        Count(AtomicI32::new(word.cast_signed()))
    }

    /// Returns the raw word.
    #[cfg(test)]
    pub(super) fn word(&self) -> u32 {
        // Relaxed: tests read a quiescent word.
        self.0.load(Ordering::Relaxed).cast_unsigned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn unexpected(notice: Notice) {
        panic!("told of misuse where there was none: {notice:?}");
    }

    /// A put came between the increment of the get that pins the count and its exchange.
    #[test]
    fn rcuref_pin_leaves_what_fell_below_the_zone() {
        let count = Count::at(MAXREF);
        count.pin(MAXREF + 1, unexpected);
        assert_eq!(count.word(), MAXREF);
    }

    #[test]
    fn rcuref_the_lowest_released_word_is_dead() {
        let (count, told) = (Count::at(RELEASED), std::cell::Cell::new(None));
        assert!(!count.put_slow(|notice| told.set(Some(notice))));
        assert_eq!(told.take(), Some(Notice::ExcessPuts(DEAD - RELEASED)));
        assert_eq!(count.word(), DEAD);
    }
}
