//! The metrics of what groups allocate and free.

use std::hint::black_box;

use submeter::switch::{THREAD_COUNTS, ThreadMeter};
use submeter::{Bytes, Count, Counter, Metrics, SchemaBuilder};

use crate::counts::{Counts, thread_counts};

/// Counters of what threads allocate and free while they work for a group.
///
/// Declare them once in a schema: `let heap: Volume = schema.declare();`. Their names are
/// `heap_allocated_bytes`, `heap_allocated_blocks`, `heap_freed_bytes` and `heap_freed_blocks`.
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter::{Schema, Tree, switch};
/// use submeter_alloc::{Metered, Volume};
///
/// #[global_allocator]
/// static HEAP: Metered<System> = Metered::new(System);
///
/// let mut schema = Schema::builder();
/// let heap: Volume = schema.declare();
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// let entered = acme.enter();
/// let block = vec![0_u8; 4096];
/// switch::park(); // charges a thread that stays in its group
/// assert!(acme.sum(heap.allocated_bytes) >= 4096); // the read itself may allocate
/// drop(block);
/// drop(entered);
/// assert!(acme.sum(heap.freed_bytes) >= 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// Bytes that were asked for, of blocks that were allocated.
    pub allocated_bytes: Counter<Bytes>,
    /// Blocks that were allocated.
    pub allocated_blocks: Counter<Count>,
    /// Bytes that were asked for, of blocks that were freed.
    pub freed_bytes: Counter<Bytes>,
    /// Blocks that were freed.
    pub freed_blocks: Counter<Count>,
}

impl Metrics for Volume {
    fn declare(schema: &mut SchemaBuilder) -> Volume {
        Volume {
            allocated_bytes: schema.thread_count(
                "heap_allocated_bytes",
                "Heap memory allocated, by requested size",
                &ThreadCounts,
                0,
            ),
            allocated_blocks: schema.thread_count(
                "heap_allocated_blocks",
                "Blocks of heap memory allocated",
                &ThreadCounts,
                1,
            ),
            freed_bytes: schema.thread_count(
                "heap_freed_bytes",
                "Heap memory freed, by requested size, whichever group allocated it",
                &ThreadCounts,
                2,
            ),
            freed_blocks: schema.thread_count(
                "heap_freed_blocks",
                "Blocks of heap memory freed, whichever group allocated them",
                &ThreadCounts,
                3,
            ),
        }
    }
}

/// The counts that every thread keeps anyway.
struct ThreadCounts;

impl ThreadMeter for ThreadCounts {
    #[inline]
    fn counts(&self) -> [u64; THREAD_COUNTS] {
        let counts = thread_counts();
        let Counts { allocated_bytes, allocated_blocks, freed_bytes, freed_blocks } = counts;
        [allocated_bytes, allocated_blocks, freed_bytes, freed_blocks]
    }
}

/// Returns whether the global allocator of this program is a [`Metered`](crate::Metered), so that a
/// block allocated here is counted. If it is not, every [`Volume`] stays 0.
///
/// Check it at start-up: another crate may have set the program's allocator, or none has.
#[must_use]
pub fn is_linked() -> bool {
    let before = thread_counts();
    // `black_box` keeps the compiler from removing a block that nothing reads.
    drop(black_box(Box::new(black_box(0_u8))));
    thread_counts().allocated_blocks != before.allocated_blocks
}
