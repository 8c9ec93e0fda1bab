//! A counter that never goes above a limit.

use std::error::Error;
use std::fmt;
use std::io;

use super::budget::{Budget, Words};
use super::{Approximate, BATCH_DEFAULT, mask_of};
use crate::storage::{Area, Block};

/// A counter that never goes above a limit, and counts on the running CPU's own word as long as the
/// limit is not near.
///
/// Each CPU may add, without asking, up to the next multiple of the batch: that much is set aside
/// for it. So an add costs about a plain one and two loads of a line that is rarely written, a
/// third of an exchange of one atomic
/// (`proof/submeter-bench/record/x86_64-linux/2026-11-21-counter.md`); each time a CPU's word
/// crosses a multiple, it costs two locked instructions; near the limit, one or two as well, and
/// every CPU meets there.
///
/// The limit comes with each add, so that it may change at any time and callers may have different
/// ones; creating the counter only chooses a batch that suits it.
///
/// The price is room: what is set aside, [`slack`](LimitedCounter::slack), cannot be granted to
/// other CPUs. An add may be refused when it would leave less than `slack` below the limit, and
/// is never refused before. A batch of 1 has no slack, and costs what one shared atomic costs.
///
/// # Examples
/// ```
/// use submeter_percpu::LimitedCounter;
///
/// let memory = LimitedCounter::for_limit(1 << 20)?;
/// memory.try_add(1000, 1 << 20)?;
/// assert!(memory.try_add(1 << 20, 1 << 20).is_err());
/// memory.try_add(-1000, 1 << 20)?;
/// assert_eq!(memory.sum(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Ordering
/// An add that uses room which was given back comes after what its holder did before giving it
/// back, if the give-back crossed a batch boundary; otherwise adds order nothing. `sum` never
/// misses an add that returned before.
///
/// # Differences from Linux
/// `percpu_counter_limited_add` looks at the sum and then adds: adders that look at the same time
/// exceed the limit. Here the look needs no agreement, because what a CPU may add on its own was
/// set aside before; and what was not set aside is charged by an exchange before it is added.
#[repr(C, align(64))]
pub struct LimitedCounter {
    block: Block,
    budget: Aligned,
}

/// On a line of its own: written when words cross, read by every add. 64 bytes, not the 128 of
/// `CachePadded`, which would double the counter.
#[repr(align(64))]
struct Aligned(Budget);

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<LimitedCounter>() <= 128);

/// Error of an add that was refused: the limit might have been exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverLimitError {
    /// What was to be added.
    pub n: i64,
    /// The limit.
    pub limit: i64,
    /// The most that the value may have been.
    pub high: i64,
}

impl fmt::Display for OverLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimitError { n, limit, high } = self;
        write!(f, "adding {n} to at most {high} may exceed the limit of {limit}: give back first")
    }
}

impl Error for OverLimitError {}

impl LimitedCounter {
    /// Creates a counter of 0 in the common area for a limit of about `limit`: with the widest
    /// batch, 32 at most, whose slack is a sixteenth of the limit or less.
    ///
    /// # Errors
    /// When there is no address space for the area, or no word left in it.
    pub fn for_limit(limit: u64) -> io::Result<LimitedCounter> {
        let area = Area::common()?;
        let each = limit / 16 / area.data_rows() as u64;
        // The largest power of two that is no more than `each + 1`.
        let batch = 1 << (each + 1).ilog2();
        LimitedCounter::with_batch(area, BATCH_DEFAULT.min(batch))
    }

    /// Creates a counter of 0 in `area`. A larger batch makes adds cheaper and keeps more room
    /// aside. Choose one that is several times what is usually added at once.
    ///
    /// # Errors
    /// `OutOfMemory` when the area has no word left.
    ///
    /// # Panics
    /// Unless `batch` is a power of two and at most 2^48.
    pub fn with_batch(area: &Area, batch: u64) -> io::Result<LimitedCounter> {
        let budget = Budget::new(mask_of(batch), area.data_rows() as u64);
        Ok(LimitedCounter { block: area.word()?, budget: Aligned(budget) })
    }

    /// Adds `n` if the value stays at or below `limit`, whatever others add at the same time; a
    /// negative `n` gives back, and is never refused.
    ///
    /// Callers may bring different limits: each grant is right for its own at the moment when it is
    /// made. Do not give back what was not granted: the value may go below zero, and wraps around
    /// at the least `i64`.
    ///
    /// # Errors
    /// [`OverLimitError`] when the value might go above the limit: never while value, `n` and
    /// [`slack`](LimitedCounter::slack) together fit, adds that are under way included with what
    /// they may cross (a batch more each).
    #[inline]
    pub fn try_add(&self, n: i64, limit: i64) -> Result<(), OverLimitError> {
        let (Aligned(budget), block) = (&self.budget, &self.block);
        if n <= 0 {
            budget.give_back(block, n);
            return Ok(());
        }
        if budget.try_add(block, n, limit) { Ok(()) } else { Err(self.over(n, limit)) }
    }

    /// Returns how much room is set aside: the most by which a refusal can come too early.
    #[must_use]
    pub fn slack(&self) -> u64 {
        self.budget.0.slack()
    }

    /// Reads without visiting CPUs: O(1). The truth is never above `high`. It is below `low` only
    /// by what adds under way have set aside and not added yet: `n` and a batch each.
    #[must_use]
    pub fn read(&self) -> Approximate {
        Approximate::new(self.budget.0.charged(), self.slack())
    }

    /// Returns the exact value once the adds are over; visits every CPU's word. While adds and
    /// give-backs race with it, it may see an add on one CPU and not the give-back on another that
    /// made room for it.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.block.sum(0).wrapping_add(self.budget.0.exact())
    }

    #[cold]
    fn over(&self, n: i64, limit: i64) -> OverLimitError {
        OverLimitError { n, limit, high: self.read().high() }
    }
}

impl Words for Block {
    #[inline(always)]
    fn add_within(&self, n: i64, mask: u64) -> bool {
        Block::add_within(self, 0, n, mask)
    }

    #[inline(always)]
    fn add_overflow(&self, n: i64, mask: u64) -> i64 {
        Block::add_overflow(self, 0, n, mask)
    }
}

impl fmt::Debug for LimitedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitedCounter({})", self.sum())
    }
}
