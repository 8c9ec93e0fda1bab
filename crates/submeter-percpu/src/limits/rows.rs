//! Stock in an area's words, by sequence or by locked row.
//!
//! ```text
//! locked row   bit 62     open: any thread exchanges it.
//!              bits 0..62 stock, which no thread uses while it is closed.
//! ```
//!
//! A locked row is closed by one instruction on the word that its users exchange, without a
//! barrier.

use std::io;
use std::time::Duration;

use submeter_sys::{ResolvedHint, barrier};

use super::stock::Stock;
use crate::backend::gated::GatedWord;
use crate::backend::locked::{self, LockedWord};
use crate::backend::rseq::ATTEMPTS;
use crate::clock::Uptime;
use crate::storage::{Area, Words};
use crate::sync::atomic::{AtomicI64, Ordering};

const OPEN: i64 = 1 << 62;

/// The words of an area: one per CPU row, or one per locked row where there are no sequences.
#[derive(Debug)]
pub(crate) struct StockRows {
    /// Never open where there are no sequences.
    word: GatedWord,
    /// Boxed, since most machines have sequences.
    locked: Option<Box<Locked>>,
    uptime: Uptime,
}

/// The stand-in for sequences.
#[derive(Debug)]
struct Locked {
    /// `None` where the area had no word left.
    word: Option<(LockedWord, ResolvedHint, Words)>,
}

impl StockRows {
    /// # Errors
    /// When the area has no word left; see [`without_words`](Self::without_words).
    pub(crate) fn new(area: &Area) -> io::Result<StockRows> {
        let uptime = Uptime::begin();
        if area.rseq().is_some() {
            // A charge in a handler may lead to a fold.
            barrier::prepare();
            return Ok(StockRows { word: GatedWord::new(area)?, locked: None, uptime });
        }
        let block = area.word()?;
        let word = Some((block.locked_word(0), block.hint(), block.into_words()));
        let locked = Some(Box::new(Locked { word }));
        Ok(StockRows { word: GatedWord::inert(), locked, uptime })
    }

    /// Makes stock that is never open, for a leaf that has no words.
    pub(crate) fn without_words(area: &Area) -> StockRows {
        let locked = area.rseq().is_none().then(|| Box::new(Locked { word: None }));
        StockRows { word: GatedWord::inert(), locked, uptime: Uptime::begin() }
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> u64 {
        self.word.len() as u64 + self.rows().count() as u64
    }

    #[inline(never)]
    fn add_locked(&self, n: i64, cap: u64) -> bool {
        let Some((word, hint, _)) = self.locked.as_ref().and_then(|locked| locked.word.as_ref())
        else {
            return false;
        };
        let row = word.at(locked::row(*hint, word.rows()));
        // Relaxed: the exchange decides.
        let before = row.load(Ordering::Relaxed);
        let after = before.wrapping_sub(OPEN).wrapping_add(n);
        if before < OPEN || after.cast_unsigned() > cap {
            return false;
        }
        // AcqRel: a thread that takes an amount that another put back is ordered after everything
        // that other thread did before. Relaxed on failure: the caller does not use the value.
        let (order, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        row.compare_exchange(before, OPEN + after, order, failed).is_ok()
    }

    fn rows(&self) -> impl Iterator<Item = &AtomicI64> {
        let word = self.locked.as_ref().and_then(|locked| locked.word.as_ref());
        word.map(|(word, ..)| word)
            .into_iter()
            .flat_map(|word| (0..word.rows()).map(|row| word.at(row)))
    }
}

impl Stock for StockRows {
    #[inline(always)]
    fn add(&self, n: i64, cap: u64) -> bool {
        self.add_inline(n, cap) || self.add_slowly(n, cap)
    }

    #[inline(always)]
    fn add_inline(&self, n: i64, cap: u64) -> bool {
        self.word.adder().add_capped(n, cap)
    }

    #[inline(always)]
    fn add_slowly(&self, n: i64, cap: u64) -> bool {
        self.locked.is_some() && self.add_locked(n, cap)
    }

    fn add_again(&self, n: i64, cap: u64) -> bool {
        for _ in 0..ATTEMPTS {
            if self.add(n, cap) {
                return true;
            }
            if self.locked.is_none() && !self.word.adder().may_retry() {
                return false;
            }
        }
        false
    }

    fn open(&self) {
        self.word.open();
        // Release: pairs with the exchanges of threads that find it open. A bit, not a sum, because
        // a fork may copy this half done, and the child then does it again.
        self.rows().for_each(|row| _ = row.fetch_or(OPEN, Ordering::Release));
    }

    fn close(&self) {
        self.word.close();
        // Acquire: pairs with the exchanges of threads that found it open.
        self.rows().for_each(|row| _ = row.fetch_and(OPEN - 1, Ordering::Acquire));
    }

    fn barrier(&self) {
        if self.locked.is_none() {
            // Continuing would grant an amount that was given back.
            barrier::wait().expect("the start-up probe found it to work");
        }
    }

    fn try_barrier(&self, patience: Duration) -> bool {
        self.locked.is_some()
            || match barrier::try_wait_for(patience) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => false,
                waited => waited.map(|()| true).expect("the start-up probe found it to work"),
            }
    }

    fn sum(&self) -> i64 {
        // Acquire: ordered before whatever the caller does with the sum.
        let stocked = self.rows().map(|row| row.load(Ordering::Acquire) & (OPEN - 1));
        stocked.sum::<i64>() + self.word.sum()
    }

    fn now_ms(&self) -> u32 {
        self.uptime.now().as_millis() as u32
    }
}
