//! A program of the table `alloc`: `Exact` around jemalloc.

use std::process::ExitCode;

use submeter_alloc::Exact;
use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::Jemalloc;

#[global_allocator]
static HEAP: Exact<Jemalloc> = Exact::new(Jemalloc);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Jemalloc, Rung::Exact)
}
