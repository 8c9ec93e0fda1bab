//! What `exact` and `sampled` share.

use std::fmt;
use std::io;

use submeter::{Bytes, Gauge, Metrics, SchemaBuilder, Tree};

const NAME: &str = "heap_live_bytes";

/// The gauge of what groups hold, `heap_live_bytes`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Live {
    /// Bytes that were asked for, of blocks that are in use.
    pub bytes: Gauge<Bytes>,
}

impl Metrics for Live {
    fn declare(schema: &mut SchemaBuilder) -> Live {
        Live { bytes: schema.gauge(NAME, "Heap memory in use, by requested size") }
    }
}

impl Live {
    /// Returns whether `tree` has this gauge under its name.
    pub(crate) fn is_of(self, tree: &Tree) -> bool {
        // In a tree that has the gauge, declaring it again adds nothing.
        let known = tree.schema().metric(NAME).and_then(|_| tree.declare::<Live>().ok());
        known.is_some_and(|known| known.bytes == self.bytes)
    }
}

/// The error of [`exact::Heap::start`](crate::exact::Heap::start).
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The program's global allocator is neither the one that this `Heap` belongs to, such as
    /// [`Exact`](crate::Exact), nor a [`Chosen`](crate::Chosen).
    NotLinked,
    /// The [`Live`] was declared for another tree.
    OtherTree,
    /// The process has a `Heap`, or had one: blocks know their owners by its numbers.
    Twice,
    /// The system refuses the address space for [`Sampled`](crate::Sampled).
    NoAddresses(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NotLinked => f.write_str(
                "the global allocator does not track owners: set one that does in the program, as \
                 in `#[global_allocator] static HEAP: Exact<System> = Exact::new(System);`",
            ),
            StartError::OtherTree => {
                write!(f, "`{NAME}` belongs to another tree: declare it in this one's schema")
            }
            StartError::Twice => {
                f.write_str("a process can have only one `Heap`, for one tree: keep it")
            }
            StartError::NoAddresses(error) => write!(f, "no address space for samples: {error}"),
        }
    }
}

impl std::error::Error for StartError {}
