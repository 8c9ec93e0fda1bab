//! One leaf's stock, and whether it may be used.

use super::stock::Stock;
use super::words::{AtomicU32, AtomicU64};
use crate::fork_lock::ForkLock;
use crate::sync::atomic::Ordering;

/// Whether there may be stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The gate is closed, but the stock was not given back yet.
    Closing,
    Closed,
}

/// A phase and the number of phases before it, in one word.
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

    fn next(self) -> Turn {
        Turn(turn_after(self.0))
    }
}

/// Returns the turn after one of three that follow each other in one order. Wraps around at a
/// multiple of three.
pub(super) fn turn_after(turn: u32) -> u32 {
    const { assert!(u32::MAX.is_multiple_of(3)) };
    (turn + 1) % u32::MAX
}

/// The stock of a group's own charges to one quota. Laid out as written: first the fields that
/// charges only read, then those that moves of stock write.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Leaf<S> {
    pub(super) stock: S,
    /// Maximum amount in a word; 0 where there are no words.
    pub(super) cap: u64,
    /// Maximum amount that a leaf of this tree adds to what levels hold: all words full, and one
    /// batch in transit. It is set even where there are no words: other leaves may have some.
    pub(super) stock_max: u64,
    /// Bits: a [`Turn`]. Writers: visits, and the thread that opens the leaf, which excludes
    /// visits; changes from and to `Open` also require the lock.
    turn: AtomicU32,
    pub(super) lock: ForkLock,
    /// The number of the last visit that closed its gate. Read and written in visits.
    closed: AtomicU64,
}

impl<S: Stock> Leaf<S> {
    /// Creates a leaf for `rows` words that hold at most `cap` each. It starts closed.
    pub(crate) fn new(stock: S, cap: u64, rows: u64) -> Leaf<S> {
        Leaf {
            stock,
            cap,
            stock_max: cap * rows + cap,
            turn: AtomicU32::new(0),
            lock: ForkLock::new(),
            closed: AtomicU64::new(0),
        }
    }

    /// Creates a leaf that is never open, in a tree whose other leaves have such words.
    #[cfg(not(loom))]
    pub(super) fn without_words(stock: S, cap: u64, rows: u64) -> Leaf<S> {
        Leaf { cap: 0, ..Leaf::new(stock, cap, rows) }
    }

    /// Returns the maximum amount in all words together.
    pub(super) fn slack(&self) -> u64 {
        if self.cap == 0 { 0 } else { self.stock_max - self.cap }
    }

    fn turn(&self) -> Turn {
        // Relaxed: code that depends on it reads it again in a visit, or with the lock held. This
        // load only saves taking the lock.
        Turn(self.turn.load(Ordering::Relaxed))
    }

    pub(super) fn phase(&self) -> Phase {
        self.turn().phase()
    }

    #[cfg(not(loom))]
    pub(super) fn is_closed(&self) -> bool {
        self.phase() == Phase::Closed
    }

    /// Moves on to the next phase.
    pub(super) fn turn_over(&self) {
        // Release: a fork that copies this store has also copied the writes before it.
        self.turn.store(self.turn().next().0, Ordering::Release);
    }

    /// Does the first half of a closing, in a visit. Returns whether the second half must follow.
    pub(super) fn close(&self, visit: u64) -> bool {
        if self.phase() == Phase::Open {
            // Stock in transit arrives first.
            let _held = self.lock.lock();
            self.stock.close();
            // Relaxed: see its declaration.
            self.closed.store(visit, Ordering::Relaxed);
            self.turn_over();
        }
        self.phase() == Phase::Closing
    }

    pub(super) fn closed(&self) -> u64 {
        // Relaxed: see its declaration.
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the amount that moves to a CPU at once: the remaining room is shared, and all CPUs
    /// of a leaf together take at most a sixteenth of it.
    pub(super) fn batch(&self, room: u64) -> u64 {
        let rows = self.slack().checked_div(self.cap).unwrap_or(1);
        (room / rows / 16).min(self.surplus())
    }

    /// Returns the maximum amount moved to a CPU at once, which is also the amount given back from
    /// a word without room.
    pub(super) fn surplus(&self) -> u64 {
        self.cap.div_ceil(2)
    }

    /// Returns the room that all levels must have for it to open: twice all its stock, so that it
    /// does not have to close again at once.
    pub(super) fn twice(&self) -> u64 {
        self.slack().saturating_mul(2)
    }

    /// Returns the amount in stock. Called in a visit to a closed leaf, or with the lock held:
    /// otherwise stock may be in transit.
    pub(super) fn stocked(&self) -> u64 {
        match self.phase() {
            Phase::Closed => 0,
            Phase::Open | Phase::Closing => self.stock.sum().cast_unsigned(),
        }
    }

    /// Closes the leaf without a barrier, where no thread charges it any longer. Returns the amount
    /// that lay in stock.
    #[cfg(not(loom))]
    pub(super) fn end(&self) -> u64 {
        let stocked = self.stocked();
        self.stock.close();
        while self.phase() != Phase::Closed {
            self.turn_over();
        }
        stocked
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn after_the_last_turn_comes_the_first() {
        let turns = [0, 1, 2, 3, u32::MAX - 2, u32::MAX - 1];
        assert_eq!(turns.map(turn_after), [1, 2, 3, 4, u32::MAX - 1, 0]);
        assert!(turns.iter().all(|turn| (turn + 1) % 3 == turn_after(*turn) % 3));
    }
}
