//! What the ways to know live bytes share.

use std::fmt;

use submeter::{Bytes, Gauge, Metrics, SchemaBuilder};

/// The gauge of what groups hold, `heap_live_bytes`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Live {
    /// Bytes that were asked for, of blocks that are in use.
    pub bytes: Gauge<Bytes>,
}

impl Metrics for Live {
    fn declare(schema: &mut SchemaBuilder) -> Live {
        Live { bytes: schema.gauge("heap_live_bytes", "Heap memory in use, as it was asked for") }
    }
}

/// The error of [`exact::Heap::start`](crate::exact::Heap::start).
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The program's global allocator is not the one that this `Heap` is of, such as
    /// [`Exact`](crate::Exact).
    NotLinked,
    /// The process has a `Heap`, or had one: blocks know their owners by its numbers.
    Twice,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NotLinked => f.write_str(
                "the global allocator knows no owners: set one that does in the program, as in \
                 `#[global_allocator] static HEAP: Exact<System> = Exact::new(System);`",
            ),
            StartError::Twice => f.write_str("a process has one `Heap`, for one tree: keep it"),
        }
    }
}

impl std::error::Error for StartError {}
