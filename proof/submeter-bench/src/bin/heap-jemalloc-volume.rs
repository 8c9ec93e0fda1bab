//! A program of the table `alloc`: jemalloc alone, whose own counts a switch reads.

use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::{Jemalloc, declare_own_counts};

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Jemalloc, Rung::OwnCounts(declare_own_counts))
}
