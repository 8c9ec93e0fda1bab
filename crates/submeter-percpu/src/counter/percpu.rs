//! The counter itself.

use std::cmp::Ordering;
use std::fmt;
use std::io;

use super::overflows::{Compared, Overflows};
use super::{Approximate, BATCH_DEFAULT, mask_of};
use crate::backend::packed::PackedWords;
use crate::storage::{Area, BlockWord};

/// A counter that goes up and down on the running CPU's own word. Reads are cheap with a bound, or
/// exact.
///
/// An add costs about as much as a plain one. It costs about five plain adds when a CPU's word
/// crosses a multiple of the batch, and three when whole batches are added, because the shared part
/// has words for each CPU as well; a read finds eight of them in a line. Above 64 CPUs, and where
/// there are no sequences, these words are shared, and an overflow costs three locked adds. Use an
/// atomic instead where every add needs the resulting value, or where only one thread adds; use a
/// [`LimitedCounter`](super::LimitedCounter) where the value must not exceed a limit.
///
/// - [`read`](PercpuCounter::read) costs a few loads and returns the value with its bound.
/// - [`compare`](PercpuCounter::compare) costs the same, or a `sum` if the bound does not decide;
///   it always says which is greater.
/// - [`sum`](PercpuCounter::sum) costs a load for each CPU and is exact.
/// - [`estimate`](PercpuCounter::estimate) is a read without its bound.
///
/// # Examples
/// ```
/// use std::cmp::Ordering;
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
/// assert_eq!(counter.compare(11_999), Ordering::Greater);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Ordering
/// Adds order nothing. `sum` never misses an add that returned before it was called. `read` and
/// `compare` learn of an add when it returns; a `sum` may have seen it a moment before.
///
/// # Differences from Linux
/// Words keep their full width and are never folded to zero: each batch that is crossed is added to
/// the shared part as well. Hence no add ever takes a lock, `sum` needs none either and cannot see
/// a fold half-way, and a signal handler that adds between another add's test and its commit makes
/// that add restart. Words exist for possible CPUs, so that none is lost when a CPU goes offline.
/// Values are 64 bits wide and read whole on 32-bit machines too.
// Aligned to a line, so that the fields that every add reads share no line with those that
// overflows write. 64 bytes, not the 128 of `CachePadded`: the two halves belong to one counter,
// and its size matters.
#[repr(C, align(64))]
pub struct PercpuCounter {
    word: BlockWord,
    mask: u64,
    /// Maximum amount that words keep from the shared part, whichever rows are in use.
    kept: u64,
    written: Written,
}

/// The part written by overflows.
#[repr(align(64))]
struct Written {
    overflows: Overflows<PackedWords>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PercpuCounter>() <= 128);

/// Making counters.
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
        let mask = mask_of(batch);
        let word = BlockWord::new(&area.words(1)?, 0);
        let overflows =
            Overflows::many(area.beside(), 1).next().expect("as many as were asked for");
        Ok(PercpuCounter::on(word, mask, overflows))
    }

    /// Creates `count` counters of 0 side by side in the common area, for objects with several
    /// counters. All of them share one allocation of per-CPU words and one of the part that
    /// overflows write. They share lines only with each other; their words are reused once the last
    /// of them is dropped.
    ///
    /// # Errors
    /// When there is no address space for the area, or no room left in it for all of them.
    ///
    /// # Differences from Linux
    /// Like `percpu_counter_init_many`, but there the caller must also destroy them together.
    pub fn many(count: usize) -> io::Result<Vec<PercpuCounter>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let area = Area::common()?;
        let (block, mask) = (area.block(count)?, mask_of(BATCH_DEFAULT));
        let counter =
            |(index, overflows)| PercpuCounter::on(BlockWord::new(&block, index), mask, overflows);
        Ok(Overflows::many(area.beside(), count).enumerate().map(counter).collect())
    }

    fn on(word: BlockWord, mask: u64, overflows: Overflows<PackedWords>) -> PercpuCounter {
        let kept = word.area().data_rows() as u64 * mask;
        PercpuCounter { word, mask, kept, written: Written { overflows } }
    }
}

/// Counting.
impl PercpuCounter {
    /// Adds `n`, which may be negative, with wraparound. A signal handler may call it.
    #[inline]
    pub fn add(&self, n: i64) {
        if !self.word.add_inside(n, self.mask) {
            self.add_across(n);
        }
    }

    /// Not cold: where each add is as large as a batch, this is the usual path. Not inlined: it is
    /// three times as long as the other one.
    #[inline(never)]
    fn add_across(&self, n: i64) {
        if n & self.mask.cast_signed() == 0 {
            return self.add_whole_batches(n);
        }
        self.add_parts(n);
    }

    /// Adds an amount that may cross a boundary. A separate function: it needs registers saved,
    /// which [`add_whole_batches`](Self::add_whole_batches) does not.
    #[inline(never)]
    fn add_parts(&self, n: i64) {
        self.add_announced(n, |overflow| self.written.overflows.post(overflow));
    }

    /// Adds whole batches. The word's part below its boundary stays as it is, so these batches hide
    /// no other add until they are posted, and need not be announced as in flight.
    #[inline(always)]
    fn add_whole_batches(&self, n: i64) {
        self.word.add(n);
        self.written.overflows.post(n);
    }

    /// Adds an amount that may cross a boundary. It is in flight until `carry` has passed the
    /// overflow on.
    #[inline(always)]
    fn add_announced(&self, n: i64, carry: impl FnOnce(i64)) {
        if self.word.add_inside_locked(n, self.mask) {
            return;
        }
        let _in_flight = self.written.overflows.begin();
        let overflow = self.word.add_across(n, self.mask);
        if overflow != 0 {
            carry(overflow);
        }
    }
}

/// Reading.
impl PercpuCounter {
    /// Reads without visiting the CPUs' words: three lines for each eight CPUs, three loads above
    /// 64. The result is off by less than the batch for each row in use, and by less than two
    /// batches for each add that is on its way from a word to the shared part: such an add can hide
    /// that much of others that have returned. Each add under way may or may not count, as for a
    /// sum.
    ///
    /// # Differences from Linux
    /// The bound comes with the value, and there is no torn value on 32-bit machines. In Linux an
    /// add that overflows is not preempted half-way.
    #[inline]
    #[must_use]
    pub fn read(&self) -> Approximate {
        let area = self.word.area();
        // Each word's part above its boundary is missing, never negative.
        let missing = || area.rows_in_use().len() as u64 * self.mask;
        self.written.overflows.read(missing, self.mask + 1)
    }

    /// Reads without the bound: the shared part alone, which is the lower end of
    /// [`read`](PercpuCounter::read) while no add is in flight. Costs a line for each eight CPUs,
    /// one load above 64. For displays; to decide on the value, ask
    /// [`compare`](PercpuCounter::compare).
    ///
    /// # Examples
    /// ```
    /// let counter = submeter_percpu::PercpuCounter::new()?;
    /// counter.add(1000);
    /// assert!((1000 - 32..=1000).contains(&counter.estimate()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn estimate(&self) -> i64 {
        self.written.overflows.posted()
    }

    /// Returns the exact value once the adds are over; visits every CPU's word. It is never off by
    /// an overflow or a fold in progress, since neither moves anything between words that it sums.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.word.sum()
    }

    /// Returns how the value compares with `rhs`. Costs what a [`read`](PercpuCounter::read) costs,
    /// and a [`sum`](PercpuCounter::sum) where the bound does not decide. Exact once the adds are
    /// over.
    ///
    /// # Differences from Linux
    /// The answer is always that of `sum`. In Linux the window is computed from the online CPUs,
    /// and from the batch of this call instead of those of the adds.
    #[inline]
    #[must_use]
    pub fn compare(&self, rhs: i64) -> Ordering {
        match self.written.overflows.compare(self.kept, rhs) {
            Compared::Known(found) => found,
            // Reading the posts a second time, to bound the rows in use, would take longer than the
            // sum.
            Compared::Near => self.sum().cmp(&rhs),
            Compared::Busy => self.compare_busy(rhs),
        }
    }

    #[cold]
    #[inline(never)]
    fn compare_busy(&self, rhs: i64) -> Ordering {
        self.read().compare(rhs).unwrap_or_else(|| self.sum().cmp(&rhs))
    }
}

impl fmt::Debug for PercpuCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PercpuCounter({})", self.sum())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn its_text_is_its_sum() {
        let counter = PercpuCounter::new().expect("room");
        counter.add(-3);
        assert_eq!(format!("{counter:?}"), "PercpuCounter(-3)");
    }

    /// Asserts that `read` and `compare` are consistent with `returned`.
    fn check(counter: &PercpuCounter, returned: i64) {
        let read = counter.read();
        assert!(read.low() <= returned && returned <= read.high(), "{returned} not in {read:?}");
        // No add in this test is this large.
        for (rhs, wrong) in [(returned - 9, Ordering::Less), (returned + 9, Ordering::Greater)] {
            assert_ne!(counter.compare(rhs), wrong, "{returned} and {rhs}, by {read:?}");
        }
    }

    /// `read` and `compare` keep their bounds while adds are stuck before they post.
    ///
    /// A thread that crosses a boundary and loses the CPU before it posts hides later adds to the
    /// same word: they do not cross that boundary again, so they return without a post.
    #[test]
    fn bounds_hold_while_adds_are_stuck() {
        const BATCH: i64 = 32;
        for sign in [1, -1] {
            let area = Area::simulated(2).expect("address space");
            let counter = PercpuCounter::with_batch(&area, BATCH as u64).expect("room");
            Area::simulate_cpu(0);
            let mut returned = 0;
            let fill = |returned: &mut i64| {
                counter.add(sign * (BATCH - 1));
                *returned += sign * (BATCH - 1);
                check(&counter, *returned);
            };
            // Upwards, the first boundary is a batch away; downwards, the next step crosses one.
            if sign > 0 {
                fill(&mut returned);
            }
            let mut stuck = 0;
            counter.add_announced(sign, |first| {
                fill(&mut returned);
                counter.add_announced(sign, |second| {
                    stuck = 2;
                    fill(&mut returned);
                    counter.written.overflows.post(second);
                    check(&counter, returned);
                });
                returned += sign;
                check(&counter, returned);
                counter.written.overflows.post(first);
            });
            returned += sign;
            check(&counter, returned);
            assert_eq!((counter.sum(), stuck), (returned, 2));
            let quiet = counter.written.overflows.read(|| 0, 2);
            assert_eq!(quiet.max_error(), 0, "none is in flight any more, of {area:?}");
        }
    }

    /// A read visits a word for each simulated CPU unless they are many.
    ///
    /// The cost of a read is simulated too.
    #[test]
    fn a_read_visits_each_of_few_simulated_cpus() {
        use super::super::overflows::PACKED_CPUS_MAX;
        let Some(rseq) = submeter_sys::probe().rseq() else {
            eprintln!("skipped: no sequences here: {}", submeter_sys::probe().reason);
            return;
        };
        for cpus in [1, 2, 9, 64, 65, 512] {
            let area = Area::simulated(cpus).expect("address space");
            let counter = PercpuCounter::with_batch(&area, 32).expect("room");
            counter.add(70);
            let cpus = (rseq.cpus() as usize).max(cpus);
            let visited = if cpus > PACKED_CPUS_MAX as usize { 1 } else { cpus };
            assert_eq!((counter.written.overflows.visited(), counter.estimate()), (visited, 64));
        }
    }

    /// Only whole batches are posted without being announced, where there are sequences.
    #[test]
    fn only_whole_batches_are_posted_unannounced() {
        use super::super::overflows::PACKED_CPUS_MAX;
        let area = Area::common().expect("address space");
        if area.rseq().is_none_or(|rseq| rseq.cpus() > PACKED_CPUS_MAX) {
            eprintln!(
                "skipped: no packed words here: they want sequences and {PACKED_CPUS_MAX} CPUs at \
                 most: {}",
                submeter_sys::probe().reason
            );
            return;
        }
        for (n, whole) in [(64, true), (-32, true), (33, false), (-100, false), (i64::MIN, true)] {
            // A preemption in a sequence makes an add take the announced path, or a locked row.
            let unannounced = |_: &i32| {
                let counter = PercpuCounter::with_batch(area, 32).expect("room");
                counter.add(n);
                assert_eq!(counter.sum(), n);
                counter.written.overflows.announced() == 0
            };
            let quiet = (0..100).filter(unannounced).count();
            let expected = if whole { 90..=100 } else { 0..=10 };
            assert!(expected.contains(&quiet), "{n}: {quiet} of 100");
        }
    }

    /// Whole batches hide nothing that others add, wherever they are stuck.
    #[test]
    fn read_holds_while_whole_batches_are_stuck() {
        const BATCH: i64 = 32;
        for (n, before, after) in [(BATCH, 31, -31), (-BATCH, 0, 31), (1000 * BATCH, 17, 14)] {
            let area = Area::simulated(1).expect("address space");
            let counter = PercpuCounter::with_batch(&area, BATCH as u64).expect("room");
            let mut returned = 0;
            // Not `compare`: its sum counts stuck adds.
            let mut add = |n: i64| {
                counter.add(n);
                returned += n;
                let read = counter.read();
                assert!(read.low() <= returned && returned <= read.high(), "{returned}: {read:?}");
                returned
            };
            add(before);
            counter.word.add(n);
            add(after);
            let others = add(BATCH - 1);
            counter.written.overflows.post(n);
            check(&counter, others + n);
        }
    }
}
