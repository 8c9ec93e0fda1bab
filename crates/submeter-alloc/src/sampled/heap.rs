//! Transfers the samples to a tree.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Bytes, Count, Counter, Gauge, Group, GroupValues, Metrics, SchemaBuilder, Tree};

use super::{odds, places, samples, slots};
use crate::chosen::Rung;
use crate::exact::{self, Balance};
use crate::live::{self, StartError};

/// What groups hold, and how well that is known: the gauges `heap_live_bytes` and
/// `heap_live_samples`, and the counter `heap_lacking_bytes`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Live {
    /// Bytes that were asked for, of blocks that are in use: an estimate.
    pub bytes: Gauge<Bytes>,
    /// Samples that the estimate is from: its standard error is 64 KiB times the square root
    /// of one more.
    pub samples: Gauge<Count>,
    /// Bytes of blocks that no estimate ever had, whether or not they are in use. Only the root has
    /// any.
    pub lacking: Counter<Bytes>,
}

impl Live {
    /// Returns the standard error of what a group and all below it hold, in bytes: at least 19 of
    /// 20 estimates are within three standard errors. Costs a read of the gauge.
    #[must_use]
    pub fn error_bytes(&self, group: &Group) -> u64 {
        error_bytes(group.sum(self.samples))
    }

    /// The same as [`error_bytes`](Live::error_bytes), for a copy of a group.
    #[must_use]
    pub fn error_bytes_in(&self, group: &GroupValues) -> u64 {
        error_bytes(group.gauge(self.samples))
    }
}

fn error_bytes(samples: i64) -> u64 {
    odds::error(samples.max(0) as f64).round() as u64
}

impl Metrics for Live {
    fn declare(schema: &mut SchemaBuilder) -> Live {
        Live {
            bytes: live::Live::declare(schema).bytes,
            samples: schema.gauge(
                "heap_live_samples",
                "Samples of heap_live_bytes, whose standard error is 65536 * sqrt(1 + this)",
            ),
            lacking: schema.counter(
                "heap_lacking_bytes",
                "Heap memory that was allocated and could not be sampled, in use or not",
            ),
        }
    }
}

/// The samples of a tree's groups. A process has at most one. See the [module](super).
///
/// Groups are charged until it is dropped: keep it for as long as the tree. Their gauges then stay
/// as the last flush left them, whatever is freed later.
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter::{Schema, Tree};
/// use submeter_alloc::sampled::{Heap, Live, Sampled};
///
/// #[global_allocator]
/// static HEAP: Sampled<System> = Sampled::new(System);
///
/// let mut schema = Schema::builder();
/// let live: Live = schema.declare();
/// let tree = Tree::new(schema.build()?)?;
/// let heap = Heap::start(&tree, live)?;
///
/// let acme = tree.create("/acme")?;
/// let (large, small) = acme.run(|| (vec![0_u8; 1 << 20], vec![[0_u8; 100]; 10]));
/// heap.flush();
/// assert!(acme.sum(live.bytes) >= 1 << 20, "and perhaps a sample");
/// drop((large, small)); // outside of the group
/// heap.flush();
/// assert_eq!(acme.sum(live.bytes), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "groups are charged until this is dropped"]
pub struct Heap {
    books: exact::Heap,
    root: Group,
    live: Live,
    /// The lacking bytes that the tree already has.
    lacking: AtomicU64,
}

impl Heap {
    /// Starts charging the groups of `tree`: each thread from its next switch on.
    ///
    /// # Errors
    /// When the global allocator is neither a [`Sampled`](super::Sampled) nor a
    /// [`Chosen`](crate::Chosen), when `live` belongs to another tree, when the process has had a
    /// `Heap` before, or when there is no address space for samples. Blocks of groups for which
    /// there is no room later have no owner.
    pub fn start(tree: &Tree, live: Live) -> Result<Heap, StartError> {
        // Before the rung is chosen: without address space, another rung can still be chosen.
        slots::start().map_err(StartError::NoAddresses)?;
        places::start();
        let bytes = live::Live { bytes: live.bytes };
        let books = exact::Heap::begin(Rung::Sampled, tree, bytes, Some(live.samples))?;
        Ok(Heap { books, root: tree.root().clone(), live, lacking: AtomicU64::new(0) })
    }

    /// Adds what changed since the last flush to the groups' gauges, which show it after a flush of
    /// the tree, as after any update. Call it before the tree is read.
    ///
    /// Costs three sums over CPUs for each group that has blocks, and a lookup for each group that
    /// changed. In a forked child it behaves like [`exact::Heap::flush`].
    pub fn flush(&self) {
        self.root.add(self.live.lacking, raise(&self.lacking, samples::lacking()));
        self.books.flush();
    }

    /// Returns how many groups had a number at once, as [`exact::Heap::numbers`] does.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.books.numbers()
    }

    /// Flushes, and returns the totals of the books and of the tree. They are equal if no thread
    /// allocates meanwhile. A permanent self-check, not a measure of the estimate.
    ///
    /// Costs a [`flush`](Heap::flush), and a flush of the tree.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.flush();
        self.books.balance()
    }
}

/// Raises `known` to `now`, and returns by how much. Of two flushes the one that read less may be
/// last, and adds nothing: a counter never falls.
fn raise(known: &AtomicU64, now: u64) -> u64 {
    // Relaxed: each added part is taken once, by whichever flush.
    now.saturating_sub(known.fetch_max(now, Ordering::Relaxed))
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("live", &self.live).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two flushes the one that read less may be last.
    #[test]
    fn a_flush_that_read_less_adds_nothing() {
        let known = AtomicU64::new(0);
        assert_eq!([5, 3, 5, 9].map(|now| raise(&known, now)), [5, 0, 0, 4]);
    }
}
