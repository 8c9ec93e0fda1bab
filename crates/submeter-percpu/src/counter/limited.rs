//! A counter that never goes above a limit.

use std::error::Error;
use std::fmt;
use std::io;

use super::{Approximate, BATCH_DEFAULT, mask_of};
use crate::limits::{Flat, StockRows};
use crate::storage::Area;

/// A counter that never exceeds a limit, and counts on the running CPU's own word as long as the
/// limit is not near.
///
/// Each CPU has some room in *stock*: an add takes from it and a give-back puts back, at about the
/// cost of a plain add. Where the stock does not suffice, or has no room for more, the operation
/// costs some locked instructions and moves half a batch at once.
///
/// Near the limit all stock is given back, behind one barrier. From then on an add is one locked
/// instruction on a word that all CPUs share, and a refusal is a few loads. Stock returns once
/// there is room for twice all of it, after 10 ms at the earliest, so that a limit that is always
/// near does not cost a barrier for each refusal.
///
/// An add is refused if and only if it does not fit. Where limits are nested, such as those of a
/// service, its tenants and their sessions, use a tree of [`LimitNode`](crate::LimitNode)s; this is
/// a tree of one.
///
/// # Examples
/// ```
/// use submeter_percpu::LimitedCounter;
///
/// let memory = LimitedCounter::for_limit(1 << 20)?;
/// memory.try_add(1000)?;
/// assert!(memory.try_add(1 << 20).is_err());
/// memory.try_add(-1000)?;
/// assert_eq!(memory.sum(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Signal handlers and forks
/// Adds and reads may be made in a signal handler. A handler that interrupts an add that is moving
/// stock does not wait for it: its own add may be refused although it would fit, and its sum may be
/// too high by the amount in stock. A child that is forked while another thread moves stock keeps
/// what that thread had reserved: the child may be refused too early, by as much as
/// [`slack`](LimitedCounter::slack) plus that thread's add, but never exceeds the limit.
///
/// A handler waits like any other caller for a move by *another* thread: near the limit, and in
/// `sum`. Do not add while holding a lock that handlers of other threads want, nor while other
/// threads are stopped.
///
/// # Ordering
/// An add that finds no room in its CPU's stock may use an amount that another thread gave back at
/// the shared word; it then happens after everything that thread did before giving back. Other adds
/// order nothing. `sum` never misses an add that returned before it was called, unless give-backs
/// on other CPUs race with it.
///
/// # Differences from Linux
/// `percpu_counter_limited_add` looks at the sum and then adds: adders that look at the same time
/// exceed the limit. Here an add takes room that was charged before. There the limit is an argument
/// of each add. Here it belongs to the counter, so that stock has already been compared with it and
/// an add need not look at anything else.
#[repr(C, align(64))]
pub struct LimitedCounter {
    flat: Flat<StockRows>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<LimitedCounter>() <= 192);

/// The amount held for a value of 0: values may be negative, amounts held may not.
const ZERO: u64 = 1 << 63;

fn held_of(value: i64) -> u64 {
    value.cast_unsigned() ^ ZERO
}

fn value_of(held: u64) -> i64 {
    (held ^ ZERO).cast_signed()
}

/// The error of an add that was refused because it would have exceeded the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverLimitError {
    /// The amount that was to be added.
    pub n: i64,
    /// The limit.
    pub limit: i64,
    /// The value at which the add did not fit; in a signal handler, where it might have fitted, the
    /// highest possible value.
    pub high: i64,
}

impl fmt::Display for OverLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimitError { n, limit, high } = self;
        write!(f, "adding {n} to {high} would exceed the limit of {limit}: give some back first")
    }
}

impl Error for OverLimitError {}

impl LimitedCounter {
    /// Creates a counter of 0 in the common area with this limit. Its batch is the widest one, at
    /// most 32, whose slack is a sixteenth of the limit or less.
    ///
    /// # Errors
    /// When there is no address space for the area, or no word left in it.
    pub fn for_limit(limit: i64) -> io::Result<LimitedCounter> {
        let area = Area::common()?;
        let each = limit.max(0).cast_unsigned() / 16 / area.data_rows() as u64;
        // The largest power of two up to `each + 1`.
        let batch = 1 << (each + 1).ilog2();
        LimitedCounter::with_batch(area, BATCH_DEFAULT.min(batch), limit)
    }

    /// Creates a counter of 0 in `area` with this limit. With a larger batch more lies in stock and
    /// is moved less often. Choose a batch of several times the usual amount of an add.
    ///
    /// # Errors
    /// `OutOfMemory` when the area has no word left.
    ///
    /// # Panics
    /// Unless `batch` is a power of two and at most 2^48.
    pub fn with_batch(area: &Area, batch: u64, limit: i64) -> io::Result<LimitedCounter> {
        let (cap, rows) = (mask_of(batch), area.data_rows() as u64);
        let stock = StockRows::new(area)?;
        Ok(LimitedCounter { flat: Flat::new(stock, cap, rows, ZERO, held_of(limit)) })
    }

    /// Adds `n` if the value stays at or below the limit, whatever other threads add at the same
    /// time; a negative `n` gives back, and is never refused.
    ///
    /// Do not give back more than was granted: the value may go below zero.
    ///
    /// # Errors
    /// [`OverLimitError`] when the value would go above the limit; in a signal handler that
    /// interrupted its own thread's add to a counter with a limit, also when the value would only
    /// come near the limit.
    ///
    /// # Panics
    /// In debug builds, when so much is given back that the value would go below the least `i64`;
    /// otherwise it wraps around.
    #[inline]
    pub fn try_add(&self, n: i64) -> Result<(), OverLimitError> {
        if n <= 0 {
            self.flat.release(n.unsigned_abs());
            return Ok(());
        }
        self.flat.try_charge(n.unsigned_abs()).map_err(|refusal| {
            let [limit, high] = [refusal.limit, refusal.held].map(value_of);
            OverLimitError { n, limit, high }
        })
    }

    /// Sets the limit. A limit below the value takes back all stock, behind a barrier: once this
    /// has returned, nothing is added until it fits. The batch stays as it was. An add under way
    /// that the new limit refuses may count until then, so that others are refused as well.
    ///
    /// Do not call it in signal handlers: in one that interrupts an add that is moving stock, the
    /// stock is still granted.
    pub fn set_limit(&self, limit: i64) {
        self.flat.set_limit(held_of(limit));
    }

    /// Returns the current limit.
    #[must_use]
    pub fn limit(&self) -> i64 {
        value_of(self.flat.limit())
    }

    /// Returns the maximum amount in stock, by which a [`read`](LimitedCounter::read) far from the
    /// limit can be off.
    #[must_use]
    pub fn slack(&self) -> u64 {
        self.flat.slack()
    }

    /// Reads without visiting CPUs: O(1), and exact while there is no stock. The truth is never
    /// above `high`. It is below `low` only by amounts that adds under way have reserved and not
    /// added yet.
    #[must_use]
    pub fn read(&self) -> Approximate {
        let (held, slack) = self.flat.held();
        Approximate::new(value_of(held).wrapping_sub_unsigned(slack), slack)
    }

    /// Returns the exact value once the adds are over; visits every CPU's word. While adds and
    /// give-backs race with it, it may see an add on one CPU and not the give-back on another that
    /// made room for it, or the give-back and not the add.
    #[must_use]
    pub fn sum(&self) -> i64 {
        value_of(self.flat.charged())
    }
}

impl fmt::Debug for LimitedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitedCounter({})", self.sum())
    }
}
