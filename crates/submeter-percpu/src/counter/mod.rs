//! One number that every CPU adds to.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::storage::{Area, Block};

/// The batch of a counter unless it is told otherwise: Linux's `percpu_counter_batch` at its smallest.
pub const BATCH_DEFAULT: u64 = 32;

/// With the most rows that an area can have (8,192 CPUs and 64), the width of a read still fits an `i64`.
const BATCH_MAX: u64 = 1 << 48;

/// Counts up and down on the running CPU's own word; reads cheaply with a bound, or exactly.
///
/// An add costs about a plain one; each time a CPU's word crosses a multiple of the batch, it also
/// costs a locked add to the shared part. Use an atomic instead where every add needs the value
/// after it, or where a number is added to by one thread only.
///
/// # Examples
/// ```
/// use submeter_percpu::PercpuCounter;
///
/// let counter = PercpuCounter::new()?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| counter.add(3)));
///     }
/// });
/// assert_eq!(counter.sum(), 12_000);
/// let read = counter.read();
/// assert!(read.low() <= 12_000 && 12_000 <= read.high());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Ordering
/// Adds order nothing. `sum` never misses an add that returned before it was called.
///
/// # Differences from Linux
/// Words keep their full width and are never folded to zero: what crosses a batch boundary is added to the
/// shared part as well. So no add ever takes a lock, `sum` needs none either and cannot
/// catch a fold half-way, and the bound is one-sided and does not grow with the batch of the *callers*.
pub struct PercpuCounter {
    block: Block,
    mask: u64,
    /// Bits: a sum of multiples of the batch. Writers: `add`, by locked add only.
    shared: AtomicI64,
}

/// Holds an approximate value: the truth lies between [`low`](Approximate::low) and
/// [`high`](Approximate::high), adds still under way excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximate {
    low: i64,
    width: u64,
}

impl Approximate {
    /// Returns the least that it can be.
    #[must_use]
    pub fn low(self) -> i64 {
        self.low
    }

    /// Returns the most that it can be.
    #[must_use]
    pub fn high(self) -> i64 {
        self.low.wrapping_add_unsigned(self.width)
    }

    /// Returns the middle: off by at most [`bound`](Approximate::bound).
    #[must_use]
    pub fn value(self) -> i64 {
        self.low.wrapping_add_unsigned(self.width / 2)
    }

    /// Returns how far [`value`](Approximate::value) can be from the truth.
    #[must_use]
    pub fn bound(self) -> u64 {
        self.width.div_ceil(2)
    }
}

impl PercpuCounter {
    /// Creates a counter of 0 in the common area, with the usual batch.
    ///
    /// # Errors
    /// When there is no address space for the area, or no word left in it.
    pub fn new() -> io::Result<PercpuCounter> {
        PercpuCounter::with_batch(Area::common()?, BATCH_DEFAULT)
    }

    /// Creates a counter of 0 in `area`. A larger batch makes adds cheaper and reads wider.
    ///
    /// # Errors
    /// `OutOfMemory` when the area has no word left.
    ///
    /// # Panics
    /// Unless `batch` is a power of two and at most 2^48.
    pub fn with_batch(area: &Area, batch: u64) -> io::Result<PercpuCounter> {
        assert!(batch.is_power_of_two(), "a batch is a power of two");
        assert!(batch <= BATCH_MAX, "a batch is at most 2^48");
        Ok(PercpuCounter { block: area.word()?, mask: batch - 1, shared: AtomicI64::new(0) })
    }

    /// Adds `n`, which may be negative. Wraps around.
    #[inline]
    pub fn add(&self, n: i64) {
        let carried = self.block.add_carry(0, n, self.mask);
        if carried != 0 {
            self.carried(carried);
        }
    }

    #[cold]
    fn carried(&self, carried: i64) {
        // Relaxed: `read` promises nothing about adds that race with it, and a reader that was told
        // of an add by other means is ordered by those.
        self.shared.fetch_add(carried, Ordering::Relaxed);
    }

    /// Reads without visiting CPUs: O(1), off by less than the batch for each row in use.
    #[must_use]
    pub fn read(&self) -> Approximate {
        let rows = self.block.area().rows_in_use().len() as u64;
        // Relaxed: see `carried`. Each word's part below a batch boundary is missing, never negative: the
        // shared part is the least that it can be.
        Approximate { low: self.shared.load(Ordering::Relaxed), width: rows * self.mask }
    }

    /// Returns the exact value once the adds are over; visits every CPU's word.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.block.sum(0)
    }
}

impl fmt::Debug for PercpuCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PercpuCounter({})", self.sum())
    }
}
