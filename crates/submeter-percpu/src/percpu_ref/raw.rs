//! The per-CPU words of one reference count, by sequence or by locked row; and a value under a
//! lock.

use std::cell::UnsafeCell;
use std::io;

use submeter_sys::{CpuHint, Rseq, STRIDE, membarrier};

use super::lock::ForkLock;
use super::rows;
use super::switch::Slots;
use crate::backend::emulated;
use crate::backend::rseq::ATTEMPTS;
use crate::storage::raw::LockedWord;
use crate::storage::{Area, Block, Words};
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

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

/// A word of every CPU row that takes adds by sequence while its gate is open.
///
/// Word, gate and owner are one object, so that no add can meet another word's gate, or outlive
/// the rows. Laid out as written, as is everything that holds it first: the gate's address is then
/// the count's own, and a get needs no instruction for it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct GatedWord {
    /// What the sequences test in the section that commits.
    ///
    /// Law: 0 while closed, `rseq.cpus()` while open. Writer: the holder of the count's lock.
    gate: AtomicU32,
    /// Inert in an area without sequences: the gate then holds 0 even when open.
    rseq: Rseq,
    /// In row 0. Dangling where `rseq` is inert.
    address: *mut i64,
    /// Keeps the rows.
    _words: Words,
}

// SAFETY: 1. `address` is dereferenced only by sequences and by atomic loads, both made for
// concurrent use; `_words` keeps it valid. 2. The other fields are `Send` by themselves.
unsafe impl Send for GatedWord {}
// SAFETY: 1 and 2 as for `Send`; what changes is atomic.
unsafe impl Sync for GatedWord {}

/// The way to add to a [`GatedWord`], copied out of it.
///
/// Adds take this, not the word: the add that puts the last reference may be followed at once by
/// the end of the object that holds the word, and a reference to a whole object must not be an
/// argument of a function then. A reference to an atomic may.
#[derive(Clone, Copy)]
pub(super) struct Adder<'a> {
    gate: &'a AtomicU32,
    rseq: Rseq,
    address: *mut i64,
}

impl GatedWord {
    /// Takes over a block, of whose words the first is the one that is added to. Closed at first.
    pub(super) fn new(block: Block) -> GatedWord {
        let (rseq, address) = match block.cpu_word(0) {
            Some(word) => (word.rseq(), word.address()),
            None => (Rseq::inert(), std::ptr::NonNull::dangling().as_ptr()),
        };
        GatedWord { gate: AtomicU32::new(0), rseq, address, _words: block.into_words() }
    }

    #[inline(always)]
    pub(super) fn adder(&self) -> Adder<'_> {
        let GatedWord { gate, rseq, address, .. } = self;
        Adder { gate, rseq: *rseq, address: *address }
    }

    /// As [`adder`](Self::adder), of a word that may end with the add.
    ///
    /// # Safety
    /// 1. `this` points to a word that lives until the add with the result commits. 2. The result
    ///    is not used after that.
    #[inline(always)]
    pub(super) unsafe fn adder_at<'a>(this: *const GatedWord) -> Adder<'a> {
        // SAFETY: 1. The word lives: the caller's first promise. 2. No reference to the whole is
        // made: each field is taken by itself.
        unsafe { Adder { gate: &(*this).gate, rseq: (*this).rseq, address: (*this).address } }
    }

    pub(super) fn is_open(&self) -> bool {
        self.adder().is_open()
    }

    /// Lets sequences commit that start from now on.
    pub(super) fn open(&self) {
        // Release: a sequence that finds it open, and every thread that is handed what that
        // sequence counted, comes after what was written before (the count's bias).
        self.gate.store(self.rseq.cpus(), Ordering::Release);
    }

    /// Lets no sequence commit that starts after the barrier which the caller issues next.
    pub(super) fn close(&self) {
        // Relaxed: the barrier orders it.
        self.gate.store(0, Ordering::Relaxed);
    }

    /// Sums the rows. 0 without sequences, where there are none.
    pub(super) fn sum(&self) -> i64 {
        let load = |row: usize| {
            let word = self.address.wrapping_byte_add(row * STRIDE);
            // SAFETY: 1. Valid: `row` is below the number of rows (the range below), and `_words`
            // keeps them. 2. Aligned: `CpuWord` vouches for row 0, and strides are multiples of 8.
            // 3. Concurrent writes are atomic: sequences store an aligned word by one instruction.
            let word = unsafe { AtomicI64::from_ptr(word) };
            // Acquire: after the barrier, which the caller issued; before what it does with the
            // sum.
            word.load(Ordering::Acquire)
        };
        (0..self.rseq.cpus() as usize).map(load).fold(0, i64::wrapping_add)
    }
}

impl Adder<'_> {
    #[inline(always)]
    fn is_open(self) -> bool {
        // Relaxed: a hint to all but the lock's holder, whom the lock orders.
        self.gate.load(Ordering::Relaxed) != 0
    }

    /// Adds the constant `N`, 1 or -1, if the gate is open. Returns whether it did.
    #[inline(always)]
    pub(super) fn add_one<const N: i32>(self) -> bool {
        // SAFETY: 1. The word is valid in as many rows as an open gate holds: `GatedWord` has both,
        // and lives (the lifetime, or the promise to `adder_at`). A closed gate, as an inert word's
        // always is, lets nothing commit. 2. Only sequences write the word: it is `GatedWord`'s
        // own, and `Words` zeroes it on drop, when none is left. 3. The gate is a live atomic.
        unsafe { self.rseq.add_while::<N>(self.address, self.gate.as_ptr()) }
    }

    /// As [`add_one`](Self::add_one), with a value.
    #[inline(always)]
    pub(super) fn add(self, n: i64) -> bool {
        // SAFETY: 1 to 3 as in `add_one`.
        unsafe { self.rseq.add_value_while(self.address, self.gate.as_ptr(), n) }
    }

    /// Tries again where that may help. Returns whether the add was done.
    #[cold]
    pub(super) fn add_again(self, n: i64) -> bool {
        for _ in 0..ATTEMPTS {
            if !self.is_open() || !self.rseq.adopt_thread() {
                return false;
            }
            if self.add(n) {
                return true;
            }
        }
        false
    }
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
