//! Charges below a limit, from stock that each CPU has at hand.
//!
//! # The protocol
//! What is *held* is compared with the limit: what was charged and not released, and what lies in
//! stock. Each CPU's stock is a word that only its own sequences change, between 0 and a cap. A
//! charge takes from it and a release puts back, in one sequence that tests a gate as well.
//!
//! - *Invariant*: `held` is never below what is charged, and never raised above the limit.
//! - A charge that finds too little **refills**: it raises `held` by what it wants and a batch, and
//!   puts the batch into its CPU's word. A release that finds no room takes some stock with it and
//!   lowers `held`.
//! - A charge for which there is no room **folds**: it closes the gate, issues one barrier, and
//!   gives all stock back. After the barrier every sequence has committed and is visible, or starts
//!   again and finds the gate closed. Then `held` is what is charged, each charge and release
//!   changes `held` itself, and a refusal is exact.
//! - Words keep what they held when the gate was closed: a sequence's plain store would bring back
//!   what anybody else stored. So the gate **opens** only after `held` was raised by their sum. It
//!   does where there is room for all stock twice, and not within `REST_MS` of the last fold.
//!
//! Stock moves with the lock held, so that a fold waits for a refill under way: what that has
//! reserved and not put into its word yet would make a refusal inexact. The lock is not held across
//! the barrier, so that a fork hardly ever copies it; what is found half closed is closed by
//! whoever comes next. A signal handler that interrupted the lock's holder does not wait for it.

use crate::fork_lock::{ForkLock, Held};
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};

/// The words that models and tests watch.
mod words {
    #[cfg(all(test, not(any(loom, miri))))]
    pub(super) use super::stepped::{AtomicU32, AtomicU64};
    #[cfg(any(not(test), loom, miri))]
    pub(super) use crate::sync::atomic::{AtomicU32, AtomicU64};
}

mod leaf;
mod level;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod node_pressure;
#[cfg(not(loom))]
mod node_wait;
#[cfg(not(loom))]
mod pressure;
#[cfg(not(loom))]
mod rows;
// Not under Miri: one thread and no unsafe code, and it takes minutes there.
#[cfg(all(test, not(any(loom, miri))))]
mod stepped;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
#[cfg(all(test, loom))]
mod tree_loom;
#[cfg(all(test, not(any(loom, miri))))]
mod tree_steps;
mod wait;

pub use level::LimitMode;
#[cfg(not(loom))]
pub use node::{LimitNode, LimitUsage, Refused};
#[cfg(not(loom))]
pub use node_wait::LimitTurn;
#[cfg(not(loom))]
pub use pressure::{Pressure, Stall};
#[cfg(not(loom))]
pub(crate) use rows::StockRows;

use leaf::Leaf;

/// For how long a leaf stays exact at least, in milliseconds: a limit that is always near costs a
/// barrier in that time, not one a refusal.
const REST_MS: u32 = 10;

/// The stock of each CPU, behind a gate.
pub(crate) trait Stock {
    /// Adds `n`, which may be negative, to the running CPU's stock, if that is open and stays
    /// between 0 and `cap`. Returns whether it was done; may return false without such a reason.
    fn add(&self, n: i64, cap: u64) -> bool;
    /// The part of [`add`](Stock::add) that is inlined into callers. Where it returns false,
    /// [`add_slowly`](Stock::add_slowly) is the rest.
    fn add_inline(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }
    fn add_slowly(&self, _n: i64, _cap: u64) -> bool {
        false
    }
    /// As [`add`](Stock::add), with several attempts.
    fn add_again(&self, n: i64, cap: u64) -> bool;
    /// Lets adds commit from now on. With the lock held.
    fn open(&self);
    /// Lets no add commit that starts after the next barrier. With the lock held.
    fn close(&self);
    /// Waits until no add is under way that found it open.
    fn barrier(&self);
    /// Sums the stock. Stable while it is closed, after the barrier.
    fn sum(&self) -> i64;
    /// The time in milliseconds, which wraps around.
    fn now_ms(&self) -> u32;
}

/// What is held, in stock and in use.
#[derive(Debug)]
pub(crate) struct Level {
    /// Bits: see the invariant. Writers: charges, refills and openings, before, by exchange;
    /// releases and folds, after, by locked add.
    held: AtomicI64,
}

impl Level {
    fn new() -> Level {
        Level { held: AtomicI64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> i64 {
        // SeqCst: a refusal loads the leaf's phase, this, and the phase again, and all three must
        // be in one order with a fold. Pairs with the exchanges, so that room which was given back
        // is found with what its holder did before.
        self.held.load(Ordering::SeqCst)
    }

    /// Holds `n` more if that stays at or below `limit`. Returns whether it was done.
    fn reserve(&self, n: i64, limit: i64) -> bool {
        let room = |held: i64| held.checked_add(n).filter(|&after| after <= limit);
        // Not an add with an undo: until it is undone, one that is going to be refused would make
        // others be refused. SeqCst, both: see `held`.
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).is_ok()
    }

    fn give_back(&self, n: i64) {
        // SeqCst: see `held`; Release is what the next holder of the room pairs with.
        self.held.fetch_sub(n, Ordering::SeqCst);
    }
}

/// Whether there may be stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The gate is closed, and the stock was not given back yet.
    Closing,
    Closed,
}

/// A phase, and how many there were before: one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn(u32);

impl Turn {
    fn phase(self) -> Phase {
        match self.0 % 3 {
            0 => Phase::Closed,
            1 => Phase::Open,
            _ => Phase::Closing,
        }
    }

    /// Phases follow each other in one order. Wraps around at a multiple of three.
    fn next(self) -> Turn {
        const WRAP: u32 = u32::MAX / 3 * 3;
        Turn(if self.0 + 1 == WRAP { 0 } else { self.0 + 1 })
    }
}

/// A number that is charged and released, below limits. Laid out as written: what adds only read
/// comes first, what moves of stock write after.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Limited<S> {
    stock: S,
    level: Level,
    /// Bits: a [`Turn`]. Writer: the lock's holder.
    turn: AtomicU32,
    /// Odd while the lock's holder moves stock. Writer: the lock's holder.
    moves: AtomicU32,
    /// When it was folded last. Writer: the lock's holder.
    folded_ms: AtomicU32,
    lock: ForkLock,
    cap: u64,
    /// What all words together may hold.
    slack: u64,
}

/// Attempts at a sum while stock moves.
const ATTEMPTS: u32 = 64;

impl<S: Stock> Limited<S> {
    /// For `rows` words that hold `cap` each at most. Starts closed: what is never charged never
    /// folds.
    pub(crate) fn new(stock: S, cap: u64, rows: u64) -> Limited<S> {
        let folded_ms = AtomicU32::new(stock.now_ms().wrapping_sub(REST_MS));
        Limited {
            level: Level::new(),
            turn: AtomicU32::new(0),
            moves: AtomicU32::new(0),
            folded_ms,
            lock: ForkLock::new(),
            cap,
            slack: cap * rows,
            stock,
        }
    }

    /// The most that can lie in stock.
    pub(crate) fn slack(&self) -> u64 {
        self.slack
    }

    /// What is held, and by how much that may exceed what is charged: 0 where there is no stock.
    pub(crate) fn held(&self) -> (i64, u64) {
        match self.exactly() {
            Some(held) => (held, 0),
            None => (self.level.held(), self.slack),
        }
    }

    /// Charges a positive `n` if what is charged stays at or below `limit`.
    ///
    /// # Errors
    /// What was charged when it did not.
    #[inline]
    pub(crate) fn try_charge(&self, n: i64, limit: i64) -> Result<(), i64> {
        if self.level.held() <= limit && self.stock.add(-n, self.cap) {
            // Again, for callers with other limits: one with a higher limit may have raised what is
            // held since the first look. At *this* look what is charged was within the limit.
            // Acquire: pairs with the Release in `GatedWord::open`, behind which what is held was
            // raised. The sequence loads the gate plainly, and this look could come before that.
            fence(Ordering::Acquire);
            if self.level.held() <= limit {
                return Ok(());
            }
            self.release(n);
        }
        self.try_charge_cold(n, limit)
    }

    /// Releases an `n` that is not negative, or the least `i64`, which is its own opposite.
    #[inline]
    pub(crate) fn release(&self, n: i64) {
        if !self.stock.add(n, self.cap) {
            self.release_cold(n);
        }
    }

    /// What is charged: exact once charges are over, and never without one that returned.
    pub(crate) fn charged(&self) -> i64 {
        for _ in 0..ATTEMPTS {
            // SeqCst, here and below: stock does not move between two equal even numbers.
            let moves = self.moves.load(Ordering::SeqCst);
            let charged = self.charged_now();
            if moves.is_multiple_of(2) && self.moves.load(Ordering::SeqCst) == moves {
                return charged;
            }
            wait();
        }
        // `None` in a signal handler on top of a move, of this counter most likely. That is not
        // over, so that any answer is right which counts the stock once at most.
        let _still = self.wait_to_move();
        self.charged_now()
    }

    fn charged_now(&self) -> i64 {
        let held = self.level.held();
        let stocked = if self.turn().phase() == Phase::Closed { 0 } else { self.stock.sum() };
        held.wrapping_sub(stocked)
    }

    fn turn(&self) -> Turn {
        // SeqCst: see `Level::held`.
        Turn(self.turn.load(Ordering::SeqCst))
    }

    /// Returns what is held if that is what is charged: there was no stock, and none moved.
    fn exactly(&self) -> Option<i64> {
        // SeqCst, here and below: who finds what a move has reserved finds that it began as well.
        let moves = self.moves.load(Ordering::SeqCst);
        let closed = self.turn().phase() == Phase::Closed;
        let held = self.level.held();
        let still = moves.is_multiple_of(2) && self.moves.load(Ordering::SeqCst) == moves;
        (closed && still).then_some(held)
    }

    #[cold]
    #[inline(never)]
    fn try_charge_cold(&self, n: i64, limit: i64) -> Result<(), i64> {
        if self.refill(n, limit) {
            return Ok(());
        }
        loop {
            if self.level.reserve(n, limit) {
                return Ok(());
            }
            match self.exactly() {
                // To the unit. Otherwise there is room since the attempt above.
                Some(held) if held.checked_add(n).is_none_or(|after| after > limit) => {
                    return Err(held);
                }
                Some(_) => {}
                None if self.empty() => {}
                // The interrupted thread moves stock: there is no telling.
                None => return Err(self.level.held()),
            }
        }
    }

    /// Charges `n`, and moves stock to the running CPU, where there is room for both. Returns
    /// whether it was done.
    fn refill(&self, n: i64, limit: i64) -> bool {
        let Some(room) = limit.checked_sub(self.level.held()).and_then(|room| room.checked_sub(n))
        else {
            return false;
        };
        let batch = self.batch(room);
        let worthwhile = match self.turn().phase() {
            Phase::Open => batch > 0,
            Phase::Closing => false,
            // Twice what all words hold: a limit that is near does not make the gate swing.
            Phase::Closed if self.cap > 0 && room >= 0 => {
                room.unsigned_abs() / 2 >= self.slack && self.has_rested()
            }
            Phase::Closed => false,
        };
        // Before the lock: near a limit, and until it has rested, all charges end here.
        if !worthwhile {
            return false;
        }
        let Some(moving) = self.try_move() else { return false };
        match self.turn().phase() {
            Phase::Open => self.refill_open(&moving, n, limit, batch),
            Phase::Closing => false,
            Phase::Closed => self.open(&moving, n, limit),
        }
    }

    fn has_rested(&self) -> bool {
        // Relaxed: read after the phase. Who misses the time of a fold under way opens earlier, and
        // no less rightly.
        self.stock.now_ms().wrapping_sub(self.folded_ms.load(Ordering::Relaxed)) >= REST_MS
    }

    /// What is moved to a CPU at once: what is left is shared, and all CPUs together take a
    /// sixteenth of it at most.
    fn batch(&self, room: i64) -> i64 {
        let rows = self.slack.checked_div(self.cap).unwrap_or(1).cast_signed();
        (room / rows / 16).min(self.cap.div_ceil(2).cast_signed())
    }

    fn refill_open(&self, _: &Moving<'_>, n: i64, limit: i64, batch: i64) -> bool {
        let Some(both) = n.checked_add(batch).filter(|_| batch > 0) else { return false };
        if !self.level.reserve(both, limit) {
            return false;
        }
        if !self.stock.add_again(batch, self.cap) {
            self.level.give_back(batch);
        }
        true
    }

    fn open(&self, _: &Moving<'_>, n: i64, limit: i64) -> bool {
        let both = n.checked_add(self.stock.sum());
        let opens = both.is_some_and(|both| self.level.reserve(both, limit));
        if opens {
            // In this order: what a fork in between leaves is a gate that a fold finds closed.
            self.turn_over();
            self.stock.open();
        }
        opens
    }

    /// Gives all stock back, or waits for who moves some. Returns whether it was done: not where
    /// the calling thread holds the lock already, below a signal handler.
    fn empty(&self) -> bool {
        if self.turn().phase() != Phase::Closed {
            return self.fold();
        }
        let Some(inside) = Inside::new() else { return false };
        let held = self.lock.lock();
        // Relaxed: with the lock held. Odd where a fork copied a move, and nobody is to end it. Not
        // without looking: a refusal that pretends to move stock keeps others from being exact.
        if !self.moves.load(Ordering::Relaxed).is_multiple_of(2) {
            drop(self.begin_move(held, inside));
        }
        true
    }

    #[cold]
    fn fold(&self) -> bool {
        let Some(moving) = self.wait_to_move() else { return false };
        if self.turn().phase() == Phase::Open {
            self.stock.close();
            self.turn_over();
        }
        let closing = self.turn();
        drop(moving);
        if closing.phase() != Phase::Closing {
            return true;
        }
        self.stock.barrier();
        let Some(_moving) = self.wait_to_move() else { return false };
        // Only of the closing that the barrier came after.
        if self.turn() == closing {
            // Relaxed: the phase publishes it.
            self.folded_ms.store(self.stock.now_ms(), Ordering::Relaxed);
            // Before what is held is lowered: a fork in between leaks room, and grants none twice.
            // Nobody is refused for it, as long as the lock is held.
            self.turn_over();
            self.level.give_back(self.stock.sum());
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn release_cold(&self, n: i64) {
        let surplus = self.cap.div_ceil(2).cast_signed();
        // With half of what the word may hold, so that the next releases find room there.
        let moved = self.turn().phase() == Phase::Open
            && self.try_move().is_some_and(|_moving| {
                let taken = surplus > 0 && self.stock.add_again(-surplus, self.cap);
                if taken {
                    self.level.give_back(n.wrapping_add(surplus));
                }
                taken
            });
        if !moved {
            self.level.give_back(n);
        }
    }

    /// The next phase. With the lock held.
    fn turn_over(&self) {
        // SeqCst: see `Level::held`.
        self.turn.store(self.turn().next().0, Ordering::SeqCst);
    }

    fn try_move(&self) -> Option<Moving<'_>> {
        let inside = Inside::new()?;
        Some(self.begin_move(self.lock.try_lock()?, inside))
    }

    fn wait_to_move(&self) -> Option<Moving<'_>> {
        let inside = Inside::new()?;
        Some(self.begin_move(self.lock.lock(), inside))
    }

    fn begin_move<'a>(&'a self, held: Held<'a>, inside: Inside) -> Moving<'a> {
        // Odd now, also where a fork left it odd. SeqCst: see `charged`.
        self.moves.fetch_or(1, Ordering::SeqCst);
        Moving { moves: &self.moves, _held: held, _inside: inside }
    }
}

/// Shows that stock may be moved: holds the lock.
struct Moving<'a> {
    moves: &'a AtomicU32,
    // In this order: the lock goes first.
    _held: Held<'a>,
    _inside: Inside,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // SeqCst: see `charged`.
        self.moves.fetch_add(1, Ordering::SeqCst);
    }
}

/// Shows that the calling thread did not hold a lock of this kind before: a signal handler that
/// interrupted it must not wait for it.
struct Inside;

#[cfg(not(loom))]
mod inside {
    use std::cell::Cell;

    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    impl super::Inside {
        pub(super) fn new() -> Option<super::Inside> {
            // Not `then_some`: what that drops would set it back.
            (!INSIDE.replace(true)).then(|| super::Inside)
        }
    }

    impl Drop for super::Inside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
}

#[cfg(loom)]
impl Inside {
    /// Models have no handlers; a thread on the same CPU stands for one.
    fn new() -> Option<Inside> {
        Some(Inside)
    }
}

#[cfg(not(loom))]
fn wait() {
    std::hint::spin_loop();
}

#[cfg(loom)]
fn wait() {
    loom::thread::yield_now();
}
