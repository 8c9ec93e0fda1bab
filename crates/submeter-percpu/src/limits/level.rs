//! One level of a tree of limits: the amount held below it, its limit, and whether there may be
//! stock.

use submeter_sys::barrier::PATIENCE;

use super::leaf::turn_after;
use super::words::{AtomicU32, AtomicU64};
use crate::sync::atomic::{Ordering, fence};

/// Minimum time for which a level stays exact, in milliseconds: a limit that is always near costs
/// one barrier in that time, not one per refusal.
pub(super) const REST_MS: u32 = 10;

/// Time after which a fold that has not ended has most likely given up. Only where a limit or its
/// mode is set does it wait for its barrier however long that takes. Resuming a fold that is still
/// in progress is safe, and costs a barrier.
pub(super) const LEFT_MS: u32 = 2 * PATIENCE.as_millis() as u32;

/// The way in which a limit treats a charge that exceeds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitMode {
    /// The charge is refused.
    #[default]
    Enforced,
    /// The charge is granted, and counted as an overdraft: for trying a limit out, or where
    /// refusing is worse than exceeding it. Below the limit it costs as much as an enforced one,
    /// beyond the limit as much as near it.
    Soft,
}

/// The reason why a charge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It would have exceeded the limit.
    Limit,
    /// It would have fitted, but another charge waited for that limit before it.
    Behind,
    /// It would have had to wait, and the waits of its group
    /// [have ended](crate::LimitNode::end_waits).
    Ended,
}

/// The amount of one quota that a group and its descendants hold, and its limit.
#[derive(Debug)]
pub(crate) struct Level {
    /// Bits: see the invariant. Writers: charges, refills and openings, beforehand, by exchange;
    /// releases and folds, afterwards, by locked add.
    held: AtomicU64,
    /// `u64::MAX` for none. Writers: callers that set it.
    limit: AtomicU64,
    /// Bits: a [`Tight`] and the number of states before it. Writers: folds, and threads that
    /// loosen, only by exchange.
    tight: AtomicU32,
    /// The time when it was last drained, or began to be. Writers: folds, and threads that resume
    /// an unfinished fold.
    since_ms: AtomicU32,
    /// Number of charges that wait for this level. Writer: the holder of the queue.
    awaited: AtomicU32,
    /// Bits: whether its limit is soft. Writers: callers that set it.
    soft: AtomicU32,
    /// Bits: 0..32 the number of leaves below that may be open, 32..64 the number of openings so
    /// far.
    openings: AtomicU64,
    /// The maximum amount held so far.
    peak: AtomicU64,
    /// A lower bound on the amount charged at a moment of the peak. Equal to `peak` while no leaf
    /// was open.
    peak_low: AtomicU64,
    /// Number of charges that this level's limit refused.
    refused: AtomicU64,
    /// Number of charges granted beyond this level's limit.
    overdrafts: AtomicU64,
    /// The amount in stock below, used while a thread sums it for many levels at once.
    pub(super) stocked: AtomicU64,
}

/// The figures of a [`Level`], without its stock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) limit: u64,
    pub(crate) peak: u64,
    pub(crate) peak_low: u64,
    pub(crate) refused: u64,
    pub(crate) overdrafts: u64,
    pub(crate) mode: LimitMode,
}

/// The ordering of loads that have a place in the single order of folds, openings and charges.
///
/// With respect to an earlier plain load, such as a sequence's, a SeqCst load is no stronger than
/// an Acquire one. But loom never lets a SeqCst load find a SeqCst store if there is a newer one,
/// and so would pass without [`after_openings`].
// SeqCst: pairs with the writes of `held`, `tight`, `openings`, `limit`, `soft` and `awaited`: see
// each.
const LOOK: Ordering = if cfg!(loom) { Ordering::Acquire } else { Ordering::SeqCst };

/// Orders everything that follows after the openings of stock from which the calling thread has
/// taken.
///
/// A sequence reads its gate with a plain load: a thread that found stock there is not ordered
/// after the opening, which reserved it. Without this fence the thread could see a level as it was
/// before: its own charge would be missing, or another charge that fits would be refused. (If the
/// taken amount is handed to another thread, the machine orders that thread, as for
/// `count_since_opening` of reference counts.)
#[inline]
pub(super) fn after_openings() {
    // Acquire: pairs with the Release in `GatedWord::open`, from which the sequence's load read.
    fence(Ordering::Acquire);
}

/// One more opening, and one more leaf that may be open.
const OPENING: u64 = (1 << 32) + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tight {
    /// There may be stock below.
    Loose,
    /// Leaves below are being closed, and none opens.
    Tightening,
    /// There is no stock below.
    Drained,
}

/// A refusal of a charge by a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) held: u64,
    pub(crate) limit: u64,
}

/// The amount that a level holds after a charge, and its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    pub(super) held: u64,
    limit: u64,
}

impl Reserved {
    pub(super) fn exceeds(self) -> bool {
        self.held > self.limit
    }

    pub(super) fn room(self) -> u64 {
        self.limit.saturating_sub(self.held)
    }

    /// Returns whether nothing was held before these `n`.
    pub(super) fn is_first(self, n: u64) -> bool {
        self.held == n
    }
}

/// Results of a charge in addition to its verdict. Verdicts are a flag and a number, which
/// functions return in registers: at a limit, much of a charge's time was spent waiting for results
/// that had been stored in parts and were copied as a whole.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Effects {
    /// The amount held at the level that refuses the charge.
    held: u64,
    /// Whether an amount was held for a moment for which another charge may be waiting.
    pub(super) gave_back: bool,
    /// Whether a level may have started or stopped holding anything.
    pub(super) turned: bool,
    /// Whether leaves could not be visited, so it is unknown what fits.
    pub(super) is_blind: bool,
    /// The limit of the level that refuses. Not adjacent to `held`: see above.
    limit: u64,
}

impl Effects {
    pub(super) fn refusal(&self) -> Refusal {
        Refusal { held: self.held, limit: self.limit }
    }

    pub(super) fn set_refusal(&mut self, refusal: Refusal) {
        Refusal { held: self.held, limit: self.limit } = refusal;
    }
}

/// Returns the minimum amount charged at a level that held `held`, with this many openings under
/// way.
fn charged_at_least(held: u64, openings: u64, stock_max: u64) -> u64 {
    held.saturating_sub(u64::from(openings as u32).saturating_mul(stock_max))
}

/// The result of a closer look at a level that refused a charge.
pub(super) enum Look {
    Full(Refusal),
    Room,
    /// There is stock, or there may be.
    Stock,
}

impl Level {
    pub(crate) fn new() -> Level {
        Level {
            held: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            tight: AtomicU32::new(0),
            since_ms: AtomicU32::new(0),
            awaited: AtomicU32::new(0),
            soft: AtomicU32::new(0),
            openings: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            peak_low: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overdrafts: AtomicU64::new(0),
            stocked: AtomicU64::new(0),
        }
    }

    /// Creates a level that holds something from the start, and records no peak: a maximum that
    /// never rises saves charges two locked instructions.
    pub(super) fn starting_at(held: u64) -> Level {
        let [held, peak, peak_low] = [held, u64::MAX, u64::MAX].map(AtomicU64::new);
        Level { held, peak, peak_low, ..Level::new() }
    }

    pub(crate) fn record(&self) -> Record {
        // Relaxed, all: statistics that need not agree with each other.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Record {
            limit: load(&self.limit),
            peak: load(&self.peak),
            peak_low: load(&self.peak_low),
            refused: load(&self.refused),
            overdrafts: load(&self.overdrafts),
            mode: self.mode(),
        }
    }

    /// Returns the amount held if it is the amount charged, because no leaf below was open.
    pub(crate) fn exactly(&self) -> Option<u64> {
        after_openings();
        let (openings, tight) = (self.openings(), self.tight());
        let held = self.held();
        let closed = openings as u32 == 0 && self.openings() == openings;
        // Where a fork left an opening that never ends, a fold makes this exact again.
        let drained = || Level::state(tight) == Tight::Drained && self.tight() == tight;
        (closed || drained()).then_some(held)
    }

    pub(super) fn openings(&self) -> u64 {
        // SeqCst, here and in both functions below: a thread that sees an opening's reservation
        // also sees the opening; a thread that sees no opening sees the reservation given back.
        self.openings.load(LOOK)
    }

    pub(super) fn begin_opening(&self) {
        // SeqCst: see `openings`.
        self.openings.fetch_add(OPENING, Ordering::SeqCst);
    }

    pub(super) fn end_openings(&self, n: u64) {
        // SeqCst: see `openings`.
        self.openings.fetch_sub(n, Ordering::SeqCst);
    }

    /// Returns whether [`raise_peak`](Self::raise_peak) would raise anything.
    pub(super) fn rises(&self, held: u64, openings: u64, stock_max: u64) -> bool {
        // Relaxed, both: a statistic.
        let (peak, low) =
            (self.peak.load(Ordering::Relaxed), self.peak_low.load(Ordering::Relaxed));
        peak < held || low < held && low < charged_at_least(held, openings, stock_max)
    }

    /// Records the amount held, and the minimum charged part of it. It is known whether leaves were
    /// open if none has opened since `openings` was loaded.
    pub(super) fn raise_peak(&self, held: u64, openings: u64, stock_max: u64) {
        let raise = |word: &AtomicU64, to| {
            // Relaxed, both: a statistic. Loaded first: unless the peak is rising, this saves a
            // locked instruction at each level.
            if word.load(Ordering::Relaxed) < to {
                word.fetch_max(to, Ordering::Relaxed);
            }
        };
        raise(&self.peak, held);
        let low = charged_at_least(held, openings, stock_max);
        // Relaxed: see `raise`, which would have the same result.
        if self.peak_low.load(Ordering::Relaxed) < low && self.openings() == openings {
            raise(&self.peak_low, low);
        }
    }

    pub(super) fn refuse(&self) {
        // Relaxed: a statistic.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> u64 {
        // SeqCst: a refusal loads `tight`, this word, and `tight` again, in one order with folds;
        // and `set_limit` stores the limit, then loads this word.
        self.held.load(LOOK)
    }

    pub(super) fn limit(&self) -> u64 {
        // SeqCst: see `reserve`.
        self.limit.load(LOOK)
    }

    pub(super) fn room(&self) -> u64 {
        self.limit().saturating_sub(self.held())
    }

    pub(super) fn has_room(&self, n: u64) -> bool {
        let Refusal { held, limit } = self.refusal();
        held.checked_add(n).is_some_and(|after| after <= limit)
    }

    /// Holds `n` more if the total stays within the limit, or if the charge `may_exceed` it.
    /// Exceeding requires a drained level: stock below has not been charged, and would count as a
    /// charge.
    pub(super) fn reserve(
        &self,
        n: u64,
        may_exceed: impl Fn() -> bool,
        effects: &mut Effects,
    ) -> Option<Reserved> {
        let exceeds = may_exceed() && self.is_drained();
        let limit = if exceeds { u64::MAX } else { self.limit() };
        let room = |held: u64| held.checked_add(n).filter(|&after| after <= limit);
        // Not an add with an undo: until it is undone, a charge that will be refused would make
        // others be refused. SeqCst, both: see `held`.
        let held = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room);
        let before = held.ok()?;
        // Both are loaded again: a thread that lowers or enforces the limit first stores it and
        // then loads the amount held, so that one of the two sees the other.
        let reserved = Reserved { held: before + n, limit: self.limit() };
        if reserved.exceeds() && !(exceeds && may_exceed()) {
            self.undo(n, effects);
            return None;
        }
        Some(reserved)
    }

    /// Gives back the reservation of a charge that another level refuses.
    pub(super) fn undo(&self, n: u64, effects: &mut Effects) {
        self.give_back(n);
        effects.gave_back = true;
    }

    /// Holds `n` more, whatever the limit.
    pub(super) fn force(&self, n: u64) -> Option<Reserved> {
        // SeqCst, both: see `held`, and `reserve` for the limit.
        let add = |held: u64| held.checked_add(n);
        let before = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()?;
        Some(Reserved { held: before + n, limit: self.limit() })
    }

    pub(super) fn mode(&self) -> LimitMode {
        // SeqCst: see `set_mode`.
        if self.soft.load(LOOK) == 0 { LimitMode::Enforced } else { LimitMode::Soft }
    }

    /// Sets the mode. An excess over the limit stays; [`set_mode`](super::tree::set_mode) ensures
    /// that no stock lies below it, so that a limit that is enforced again refuses at once.
    pub(crate) fn set_mode(&self, mode: LimitMode) {
        // SeqCst: in one order with the amount held, like a limit.
        self.soft.store(u32::from(mode == LimitMode::Soft), Ordering::SeqCst);
    }

    /// Counts a charge that was granted but did not fit.
    pub(super) fn overdraw(&self) {
        // Relaxed: a statistic.
        self.overdrafts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn overdrafts(&self) -> u64 {
        // Relaxed: a statistic.
        self.overdrafts.load(Ordering::Relaxed)
    }

    /// Called by [`Common`](super::common::Common), which then announces the wait for the whole
    /// tree.
    pub(super) fn await_room(&self) {
        // SeqCst, here and in both functions below: as in `Common`.
        self.awaited.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end_await(&self) {
        // SeqCst: see `await_room`.
        self.awaited.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_awaited(&self) -> bool {
        // SeqCst: see `await_room`.
        self.awaited.load(LOOK) > 0
    }

    /// Returns whether it refuses `n` however much is released.
    pub(super) fn never_fits(&self, n: u64) -> bool {
        n > self.limit() && self.mode() == LimitMode::Enforced
    }

    pub(super) fn refusal(&self) -> Refusal {
        Refusal { held: self.held(), limit: self.limit() }
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.held() > self.limit()
    }

    /// Gives back `n`, and returns the amount still held.
    pub(super) fn give_back(&self, n: u64) -> u64 {
        // SeqCst: see `held`; its Release part is what the next holder of the room pairs with.
        let before = self.held.fetch_sub(n, Ordering::SeqCst);
        debug_assert!(before >= n, "gave back {n} of {before}");
        before - n
    }

    pub(super) fn tight(&self) -> u32 {
        // SeqCst: see `held`.
        self.tight.load(LOOK)
    }

    pub(super) fn state(of: u32) -> Tight {
        match of % 3 {
            0 => Tight::Loose,
            1 => Tight::Tightening,
            _ => Tight::Drained,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        Level::state(self.tight()) == Tight::Drained
    }

    pub(super) fn is_loose(&self) -> bool {
        Level::state(self.tight()) == Tight::Loose
    }

    /// Moves on from a state if it is still the current one.
    pub(super) fn turn_over(&self, from: u32) {
        let next = turn_after(from);
        // SeqCst: see `held`. A failure means that another thread has moved on.
        _ = self.tight.compare_exchange(from, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(super) fn look(&self, n: u64) -> Look {
        loop {
            let tight = self.tight();
            if Level::state(tight) != Tight::Drained {
                return Look::Stock;
            }
            let (limit, refusal) = (self.limit(), self.refusal());
            if refusal.held.checked_add(n).is_some_and(|after| after <= refusal.limit) {
                return Look::Room;
            }
            // In between, no leaf below was open or opening, and the amount held is compared with
            // the limit of that moment.
            if self.tight() == tight && refusal.limit == limit {
                return Look::Full(refusal);
            }
        }
    }

    /// Begins a fold, or ends one that has closed all leaves below.
    pub(super) fn turn_over_at(&self, from: u32, now_ms: u32) {
        // Relaxed: the state publishes it.
        self.since_ms.store(now_ms, Ordering::Relaxed);
        self.turn_over(from);
    }

    /// Returns whether a fold was left half done because its barrier took too long or a fork left
    /// its thread behind. Returns true to one caller per [`LEFT_MS`], which resumes the fold.
    pub(super) fn was_left(&self, now_ms: u32, again: impl Fn() -> u32) -> bool {
        // In this order: the state publishes the time when it began.
        let tight = self.tight();
        // Relaxed, both: a thread that is too late comes again.
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let is_over = is_past(since_ms, LEFT_MS, now_ms, &again);
        let take_up = |now_ms| {
            self.since_ms.compare_exchange(since_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
        };
        // A level that has been drained in the meantime must not be taken for an unfinished one.
        let is_left = Level::state(tight) == Tight::Tightening && is_over;
        is_left && take_up(again()).is_ok() && self.tight() == tight
    }

    /// Sets the limit.
    pub(super) fn store_limit(&self, limit: u64) {
        // SeqCst: see `reserve`.
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Lets leaves below open again, if there is room and the level has rested.
    pub(super) fn loosen(&self, twice: u64, now_ms: u32, again: impl Fn() -> u32) {
        let tight = self.tight();
        // Relaxed: the state publishes it.
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let is_drained = Level::state(tight) == Tight::Drained;
        if is_drained && is_past(since_ms, REST_MS, now_ms, &again) && self.room() >= twice {
            self.turn_over(tight);
        }
    }
}

/// Returns whether `ms` have passed since `since_ms`. A time that was read before `since_ms` was
/// stored would make a fold that has just begun seem 49 days old: hence the time is read `again`.
fn is_past(since_ms: u32, ms: u32, now_ms: u32, again: &impl Fn() -> u32) -> bool {
    now_ms.wrapping_sub(since_ms) >= ms && again().wrapping_sub(since_ms) >= ms
}
