//! What brings the samples to a tree.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Bytes, Count, Gauge, Group, GroupValues, Metrics, SchemaBuilder, Tree};

use super::{odds, samples, slots};
use crate::chosen::Rung;
use crate::exact::{self, Balance};
use crate::live::{self, StartError};

/// The gauges of what groups hold, and of how well that is known: `heap_live_bytes`,
/// `heap_live_samples` and `heap_live_lacking_bytes`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Live {
    /// Bytes that were asked for, of blocks that are in use: an estimate.
    pub bytes: Gauge<Bytes>,
    /// Samples that the estimate is from: its standard error is 64 KiB times the square root
    /// of one more.
    pub samples: Gauge<Count>,
    /// Bytes that were allocated and are in no estimate. Only the root has any.
    pub lacking: Gauge<Bytes>,
}

impl Live {
    /// Returns the standard error of what a group and all below it hold, in bytes: 19 of 20
    /// estimates and more are within 2.2 of them. Costs a read of the gauge.
    #[must_use]
    pub fn error_bytes(&self, group: &Group) -> u64 {
        error_bytes(group.sum(self.samples))
    }

    /// As [`error_bytes`](Live::error_bytes), of a copy of a group.
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
            lacking: schema.gauge(
                "heap_live_lacking_bytes",
                "Heap memory that was allocated and could not be sampled",
            ),
        }
    }
}

/// The samples of a tree's groups, of which a process has at most one. See the [module](super).
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
    /// What the tree has of what is lacking.
    lacking: AtomicU64,
}

impl Heap {
    /// Begins to charge the groups of `tree`: each thread from its next switch on.
    ///
    /// # Errors
    /// When the global allocator is neither a [`Sampled`](super::Sampled) nor a
    /// [`Chosen`](crate::Chosen), when `live` is another tree's, when the process has had a `Heap`
    /// before, and when there are no addresses for samples. Groups for which there is no room later
    /// are nobody's.
    pub fn start(tree: &Tree, live: Live) -> Result<Heap, StartError> {
        // Before the rung is chosen: where there are none, another one can be.
        slots::start().map_err(StartError::NoAddresses)?;
        let bytes = live::Live { bytes: live.bytes };
        let books = exact::Heap::begin(Rung::Sampled, tree, bytes, Some(live.samples))?;
        Ok(Heap { books, root: tree.root().clone(), live, lacking: AtomicU64::new(0) })
    }

    /// Brings what changed since the last flush to the gauges of the groups, which show it after a
    /// flush of the tree, as after any update. Call it before the tree is read.
    ///
    /// Costs three sums over CPUs for each group that has blocks, and a lookup for each that
    /// changed. In a forked child as [`exact::Heap::flush`].
    pub fn flush(&self) {
        let now = samples::lacking();
        // Relaxed: each part that was added is taken once, whichever flush does.
        let before = self.lacking.swap(now, Ordering::Relaxed);
        self.root.adjust(self.live.lacking, now.wrapping_sub(before).cast_signed());
        self.books.flush();
    }

    /// Returns how many groups had a number at once, as [`exact::Heap::numbers`] does.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.books.numbers()
    }

    /// Flushes, and returns what the books and the tree have: the same, once no thread allocates
    /// meanwhile. A standing check, and no measure of the estimate.
    ///
    /// Costs a [`flush`](Heap::flush), and a flush of the tree.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.flush();
        self.books.balance()
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("live", &self.live).finish_non_exhaustive()
    }
}
