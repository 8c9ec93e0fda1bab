//! The per-CPU words of one reference count, by sequence or by locked row.

use submeter_sys::CpuHint;

use crate::backend::emulated;
use crate::backend::rseq::{Gate, GatedWord};
use crate::storage::raw::LockedWord;
use crate::storage::{Area, Owned};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::rows;
use super::switch::Slots;

/// The words of an area with sequences: one a CPU row. Without: two a locked row.
///
/// Laid out as written, as is everything that holds it first: the gate's address is then the count's own, and a
/// get needs no instruction for it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct AreaSlots {
    /// Always closed where there are no sequences.
    pub(super) gate: Gate,
    /// Whether locked rows are live: a hint that spares a locked add to a dead one. Writer: the lock's holder.
    live: AtomicBool,
    pub(super) word: GatedWord,
    /// Keeps both kinds of words.
    words: Owned,
    /// Elsewhere: not there, where there are sequences, and every group has one of these.
    locked: Option<Box<Locked>>,
}

/// The words of an area without sequences.
#[derive(Clone, Copy, Debug)]
struct Locked {
    /// Where adds go.
    counted: LockedWord,
    /// What the row had counted when it died.
    collected: LockedWord,
    hint: Option<CpuHint>,
}

impl AreaSlots {
    pub(super) fn new(area: &Area) -> std::io::Result<AreaSlots> {
        // Where there are sequences, a thread that cannot use them counts in the shared word: it is
        // rare, and locked rows would cost every kill a visit.
        let block = if area.rseq().is_none() { area.block(2)? } else { area.word()? };
        let (word, locked) = match block.cpu_word(0) {
            Some((rseq, word)) => (GatedWord::new(rseq, word), None),
            None => {
                let (counted, collected) = (block.locked_word(0), block.locked_word(1));
                let locked = Locked { counted, collected, hint: block.hint() };
                (GatedWord::inert(), Some(Box::new(locked)))
            }
        };
        let live = AtomicBool::new(false);
        Ok(AreaSlots { gate: Gate::closed(), live, word, words: block.into_owned(), locked })
    }

    /// Returns whether [`barrier`](Slots::barrier) does anything.
    pub(super) fn needs_barrier(&self) -> bool {
        self.locked.is_none()
    }

    /// Returns the row in which the calling thread may try to count after its sequence did not commit.
    #[inline]
    pub(super) fn row_here(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_ref()?;
        // Relaxed: a hint; the row's sign decides.
        if !self.live.load(Ordering::Relaxed) {
            return None;
        }
        let row = emulated::row(locked.hint, locked.counted.rows());
        Some(locked.counted.at(&self.words, row))
    }

    /// As [`row_here`](Self::row_here), where the CPU's number says it without ado: what a put or get takes
    /// first where there are no sequences. Calls nothing, so that its caller has no register to save: a
    /// store in front of a locked instruction is paid for in full.
    #[inline(always)]
    pub(super) fn row_by_cpu(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_ref()?;
        // Relaxed: a hint; the row's sign decides.
        if !self.live.load(Ordering::Relaxed) {
            return None;
        }
        let row = locked.hint?.cpu()? as usize;
        (row < locked.counted.rows()).then(|| locked.counted.at(&self.words, row))
    }

    fn each_row(&self, mut visit: impl FnMut(&AtomicI64, &AtomicI64)) {
        if let Some(Locked { counted, collected, .. }) = self.locked.as_deref() {
            for row in 0..counted.rows() {
                visit(counted.at(&self.words, row), collected.at(&self.words, row));
            }
        }
    }
}

impl Slots for AreaSlots {
    #[inline(always)]
    fn add_one<const N: i32>(&self) -> bool {
        self.word.add_one::<N>(&self.gate)
    }

    #[inline(always)]
    fn add(&self, n: i64) -> bool {
        self.word.add(&self.gate, n)
    }

    #[inline]
    fn add_slow(&self, n: i64) -> bool {
        match self.row_here() {
            Some(row) => rows::add(row, n),
            None => self.word.add_again(&self.gate, n),
        }
    }

    fn is_open(&self) -> bool {
        // Relaxed: written by the lock's holder, who asks.
        self.gate.is_open() || self.live.load(Ordering::Relaxed)
    }

    fn prepare(&self) -> i64 {
        self.each_row(rows::forget);
        self.word.sum()
    }

    fn open(&self) {
        if self.locked.is_some() {
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
        self.words.area().barrier();
    }

    fn collect(&self) -> i64 {
        if self.locked.is_none() {
            return self.word.sum();
        }
        let mut sum = 0i64;
        self.each_row(|row, collected| {
            rows::die(row, collected);
            sum = sum.wrapping_add(rows::collected(collected));
        });
        sum
    }
}
