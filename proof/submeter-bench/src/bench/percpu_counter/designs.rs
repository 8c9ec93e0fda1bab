//! The counters that are compared.

use std::cmp;
use std::sync::atomic::{AtomicI64, Ordering};

use crossbeam_utils::CachePadded;
use submeter::counter::PercpuCounter;

use super::lock::Lock;

/// Counts up and down, on several CPUs at once.
pub(super) trait Counter: Send + Sync + 'static {
    /// Returns the add function for the only thread on a CPU; `place` is the CPU's index among
    /// those that count.
    fn adder(&self, place: usize) -> impl Fn(i64);

    /// Returns the value, which is exact once all adds have finished.
    fn sum(&self) -> i64;

    /// Returns an approximate value, without reading every CPU's part and without a bound.
    fn read(&self) -> i64;

    /// Returns an approximate value and computes its bound, where the design has one.
    fn read_bounded(&self) -> i64 {
        self.read()
    }

    /// Compares the exact value with `rhs`, using only `read` if that is enough.
    fn compare(&self, rhs: i64) -> cmp::Ordering;
}

impl Counter for CachePadded<PercpuCounter> {
    #[inline]
    fn adder(&self, _place: usize) -> impl Fn(i64) {
        |n| (**self).add(n)
    }

    #[inline]
    fn sum(&self) -> i64 {
        (**self).sum()
    }

    #[inline]
    fn read(&self) -> i64 {
        (**self).estimate()
    }

    #[inline]
    fn read_bounded(&self) -> i64 {
        let read = (**self).read();
        read.low() ^ read.high()
    }

    #[inline]
    fn compare(&self, rhs: i64) -> cmp::Ordering {
        (**self).compare(rhs)
    }
}

/// One word that all CPUs add to.
#[derive(Default)]
pub(super) struct Atomic(CachePadded<AtomicI64>);

impl Counter for Atomic {
    #[inline]
    fn adder(&self, _place: usize) -> impl Fn(i64) {
        // Relaxed: counts, and orders nothing else.
        |n| {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    #[inline]
    fn sum(&self) -> i64 {
        self.read()
    }

    #[inline]
    fn read(&self) -> i64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn compare(&self, rhs: i64) -> cmp::Ordering {
        self.read().cmp(&rhs)
    }
}

/// The design before the patch: a slot for each CPU is emptied into a central value, under a lock,
/// when it reaches the batch; the sum is taken under that lock.
///
/// A slot is updated with plain loads and stores by the one thread that owns it, as the kernel does
/// with preemption disabled. A program cannot disable preemption; what it would pay to find its
/// slot and to keep others out of it is not charged, so this is the least that the design can cost.
pub(super) struct LockFold<L> {
    central: CachePadded<Central<L>>,
    slots: Box<[CachePadded<AtomicI64>]>,
    batch: u64,
}

/// The lock and the value that it guards share a line, because they are always used together.
#[derive(Default)]
struct Central<L> {
    lock: L,
    /// Written only under the lock.
    value: AtomicI64,
    /// How often a slot was emptied.
    #[cfg(test)]
    folds: AtomicI64,
}

impl<L: Lock> LockFold<L> {
    /// Creates a counter of 0 for `places` CPUs.
    pub(super) fn new(places: usize, batch: u64) -> LockFold<L> {
        LockFold {
            central: CachePadded::new(Central::default()),
            slots: (0..places).map(|_| CachePadded::new(AtomicI64::new(0))).collect(),
            batch,
        }
    }

    /// Empties a slot that holds `count`. Inlined, because the locked instruction would wait for
    /// the stores of a call.
    #[inline(always)]
    fn fold(&self, slot: &AtomicI64, count: i64) {
        let Central { lock, value, .. } = &*self.central;
        lock.hold(|| {
            // Relaxed, both: the lock orders them.
            let sum = value.load(Ordering::Relaxed).wrapping_add(count);
            // Relaxed: as above.
            value.store(sum, Ordering::Relaxed);
            // Relaxed: only the owner writes it; a sum, which also reads it, holds the lock.
            slot.store(0, Ordering::Relaxed);
        });
        // Relaxed: a statistic.
        #[cfg(test)]
        self.central.folds.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a slot was emptied.
    #[cfg(test)]
    pub(super) fn folds(&self) -> i64 {
        // Relaxed: a statistic.
        self.central.folds.load(Ordering::Relaxed)
    }
}

impl<L: Lock> Counter for LockFold<L> {
    #[inline]
    fn adder(&self, place: usize) -> impl Fn(i64) {
        let slot = &*self.slots[place];
        move |n| {
            // Relaxed: only this thread writes it.
            let count = slot.load(Ordering::Relaxed).wrapping_add(n);
            if count.unsigned_abs() >= self.batch {
                self.fold(slot, count);
            } else {
                // Relaxed: counts, and orders nothing else.
                slot.store(count, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn sum(&self) -> i64 {
        let Central { lock, value, .. } = &*self.central;
        lock.hold(|| {
            // Relaxed, all: the lock excludes folds; adds below the batch race with every sum.
            let slots = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
            // Relaxed: as above.
            slots.fold(value.load(Ordering::Relaxed), i64::wrapping_add)
        })
    }

    #[inline]
    fn read(&self) -> i64 {
        // Relaxed: whatever the last fold left.
        self.central.value.load(Ordering::Relaxed)
    }

    #[inline]
    fn compare(&self, rhs: i64) -> cmp::Ordering {
        let (read, window) = (self.read(), self.batch * self.slots.len() as u64);
        // Each slot lacks less than a batch.
        if read.abs_diff(rhs) > window { read.cmp(&rhs) } else { self.sum().cmp(&rhs) }
    }
}
