//! A program of the table `alloc`: jemalloc alone.

use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Jemalloc, Rung::Bare)
}
