//! The per-CPU words of one reference count, by sequence or by locked row; and a value under a
//! lock.

use std::cell::UnsafeCell;
use std::io;

use submeter_sys::{CpuHint, membarrier};

use super::rows;
use super::switch::Slots;
use crate::backend::emulated;
use crate::backend::gated::GatedWord;
use crate::fork_lock::ForkLock;
use crate::storage::Area;
use crate::storage::raw::LockedWord;
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The words of an area with sequences: one per CPU row. Without: two per locked row.
#[derive(Debug)]
#[repr(C)]
pub(super) struct AreaSlots {
    /// Never takes an add where there are no sequences.
    pub(super) word: GatedWord,
    /// In a box: every group has one of these, and most machines have sequences.
    locked: Option<Box<Locked>>,
}

/// The words of an area without sequences.
#[derive(Debug)]
struct Locked {
    /// Where adds go.
    counted: LockedWord,
    /// What the row had counted when it died.
    collected: LockedWord,
    hint: Option<CpuHint>,
    /// Whether the rows are live: a hint that spares a locked add to a dead one. Writer: the
    /// lock's holder.
    live: AtomicBool,
}

impl Locked {
    fn is_live(&self) -> bool {
        // Relaxed: a hint; the row's sign decides.
        self.live.load(Ordering::Relaxed)
    }
}

impl AreaSlots {
    pub(super) fn new(area: &Area) -> io::Result<AreaSlots> {
        // Where there are sequences, a thread that cannot use them counts in the shared word: it is
        // rare, and locked rows would cost every kill a visit.
        let has_sequences = area.rseq().is_some();
        let block = if has_sequences { area.word()? } else { area.block(2)? };
        let locked = (!has_sequences).then(|| {
            let (counted, collected) = (block.locked_word(0), block.locked_word(1));
            let live = AtomicBool::new(false);
            Box::new(Locked { counted, collected, hint: block.hint(), live })
        });
        Ok(AreaSlots { word: GatedWord::new(block), locked })
    }

    /// Returns the row in which the calling thread may try to count after its sequence did not
    /// commit.
    #[inline]
    pub(super) fn row_here(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_deref().filter(|locked| locked.is_live())?;
        let row = emulated::row(locked.hint, locked.counted.rows());
        Some(locked.counted.at(row))
    }

    /// As [`row_here`](Self::row_here), if one load yields the CPU's number: what a put or get
    /// takes first where there are no sequences. Calls nothing, so that its caller has no register
    /// to save: a store in front of a locked instruction is paid for in full.
    #[inline(always)]
    pub(super) fn row_by_cpu(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_deref().filter(|locked| locked.is_live())?;
        let row = locked.hint?.cpu()? as usize;
        (row < locked.counted.rows()).then(|| locked.counted.at(row))
    }

    fn each_row(&self, mut visit: impl FnMut(&AtomicI64, &AtomicI64)) {
        if let Some(Locked { counted, collected, .. }) = self.locked.as_deref() {
            for row in 0..counted.rows() {
                visit(counted.at(row), collected.at(row));
            }
        }
    }
}

impl Slots for AreaSlots {
    #[inline(always)]
    fn add_one<const N: i32>(&self) -> bool {
        self.word.adder().add_one::<N>()
    }

    #[inline(always)]
    fn add(&self, n: i64) -> bool {
        self.word.adder().add(n)
    }

    #[inline]
    fn add_slow(&self, n: i64) -> bool {
        match self.row_here() {
            Some(row) => rows::add(row, n),
            None => self.word.adder().add_again(n),
        }
    }

    fn is_open(&self) -> bool {
        match self.locked.as_deref() {
            Some(locked) => locked.is_live(),
            None => self.word.is_open(),
        }
    }

    fn prepare(&self) -> i64 {
        self.each_row(rows::forget);
        self.word.sum()
    }

    fn open(&self) {
        match self.locked.as_deref() {
            Some(locked) => {
                self.each_row(|row, _| rows::live(row));
                // Relaxed: a hint.
                locked.live.store(true, Ordering::Relaxed);
            }
            None => self.word.open(),
        }
    }

    fn close(&self) {
        match self.locked.as_deref() {
            // Relaxed: a hint.
            Some(locked) => locked.live.store(false, Ordering::Relaxed),
            None => self.word.close(),
        }
    }

    fn needs_barrier(&self) -> bool {
        // Locked rows need none: each dies by one instruction on the word that its adders add to.
        self.locked.is_none()
    }

    fn barrier(&self) {
        if self.needs_barrier() {
            #[cfg(test)]
            BARRIERS.set(BARRIERS.get() + 1);
            // Going on would release objects in use.
            membarrier::rseq_barrier().expect("membarrier was registered at start-up");
        }
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

#[cfg(test)]
thread_local!(static BARRIERS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });

/// How many barriers the calling thread has issued.
#[cfg(test)]
pub(super) fn barriers_of_this_thread() -> u32 {
    BARRIERS.get()
}

/// A value that one thread at a time can use. After a fork, a value that a vanished thread was
/// using is replaced by a new one.
pub(super) struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: 1. The lock lets one thread at a time have the value. 2. It may be sent (`T: Send`).
unsafe impl<T: Send> Sync for ForkMutex<T> {}

impl<T: Default> Default for ForkMutex<T> {
    fn default() -> ForkMutex<T> {
        ForkMutex { lock: ForkLock::new(), value: UnsafeCell::default() }
    }
}

impl<T: Default> ForkMutex<T> {
    /// Calls `with`, which may neither call back here (it would wait for itself) nor run code of
    /// a user's.
    pub(super) fn with<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        let held = self.lock.lock();
        if held.stolen {
            // SAFETY: 1. `held` excludes every other thread until the end of this function. 2. The
            // old value, perhaps half-changed, is not dropped.
            unsafe { self.value.get().write(T::default()) };
        }
        // SAFETY: 1. As above. 2. No other reference of this thread's exists: a `with` inside of
        // `with` would not get the lock.
        with(unsafe { &mut *self.value.get() })
    }
}

impl<T> std::fmt::Debug for ForkMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForkMutex")
    }
}
