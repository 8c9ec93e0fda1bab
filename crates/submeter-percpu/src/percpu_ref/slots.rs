//! The per-CPU words of one reference count, by sequence or by locked row.

use crate::backend::rseq::{Gate, GatedWord};
use crate::storage::{Area, Block};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::rows;
use super::switch::Slots;

/// The words of an area with sequences: one a CPU row. Without: two a locked row.
#[derive(Debug)]
pub(super) struct AreaSlots {
    pub(super) word: GatedWord,
    /// Always closed where there are no sequences.
    pub(super) gate: Gate,
    block: Block,
    locked: bool,
    /// Whether locked rows are live: a hint that spares a locked add to a dead one. Writer: the lock's holder.
    live: AtomicBool,
}

/// In a locked row: where adds go, and what the row had counted when it died.
const COUNTED: usize = 0;
const COLLECTED: usize = 1;

impl AreaSlots {
    pub(super) fn new(area: &Area) -> std::io::Result<AreaSlots> {
        // Where there are sequences, a thread that cannot use them counts in the shared word: it is
        // rare, and locked rows would cost every kill a visit.
        let locked = area.rseq().is_none();
        let block = if locked { area.block(2)? } else { area.word()? };
        let word = block
            .cpu_word(COUNTED)
            .map_or_else(GatedWord::inert, |(rseq, word)| GatedWord::new(rseq, word));
        Ok(AreaSlots { word, gate: Gate::closed(), block, locked, live: AtomicBool::new(false) })
    }

    /// Returns whether [`barrier`](Slots::barrier) does anything.
    pub(super) fn needs_barrier(&self) -> bool {
        !self.locked
    }

    /// Returns the row in which the calling thread may try to count after its sequence did not commit.
    #[inline]
    pub(super) fn row_here(&self) -> Option<&AtomicI64> {
        // Relaxed: a hint; the row's sign decides.
        let live = self.locked && self.live.load(Ordering::Relaxed);
        live.then(|| self.block.locked_word(self.block.locked_row_here(), COUNTED))
    }

    /// The rest of an add whose first sequence did not commit.
    #[inline(never)]
    fn add_slow(&self, n: i64) -> bool {
        match self.row_here() {
            Some(row) => rows::add(row, n),
            None => self.word.add_again(&self.gate, n),
        }
    }

    fn each_row(&self, mut visit: impl FnMut(&AtomicI64, &AtomicI64)) {
        for row in 0..self.block.locked_rows() {
            visit(self.block.locked_word(row, COUNTED), self.block.locked_word(row, COLLECTED));
        }
    }
}

impl Slots for AreaSlots {
    #[inline(always)]
    fn add_one<const N: i32>(&self) -> bool {
        self.word.add_one::<N>(&self.gate) || self.add_slow(i64::from(N))
    }

    #[inline]
    fn add(&self, n: i64) -> bool {
        self.word.add(&self.gate, n) || self.add_slow(n)
    }

    fn is_open(&self) -> bool {
        // Relaxed: written by the lock's holder, who asks.
        self.gate.is_open() || self.live.load(Ordering::Relaxed)
    }

    fn prepare(&self) -> i64 {
        if self.locked {
            self.each_row(rows::forget);
        }
        self.block.sum_cpus(COUNTED)
    }

    fn open(&self) {
        if self.locked {
            self.each_row(|row, _| rows::live(row));
            // Relaxed: a hint.
            self.live.store(true, Ordering::Relaxed);
        } else {
            self.gate.open(self.word);
        }
    }

    fn close(&self) {
        self.gate.close();
        // Relaxed: a hint.
        self.live.store(false, Ordering::Relaxed);
    }

    fn barrier(&self) {
        // Locked rows need none: each dies by one instruction on the word that its adders add to.
        self.block.area().barrier();
    }

    fn collect(&self) -> i64 {
        if !self.locked {
            return self.block.sum_cpus(COUNTED);
        }
        let mut sum = 0i64;
        self.each_row(|row, collected| {
            rows::die(row, collected);
            sum = sum.wrapping_add(rows::collected(collected));
        });
        sum
    }
}
