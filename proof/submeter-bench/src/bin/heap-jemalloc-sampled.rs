//! A program of the table `alloc`: `Sampled` around jemalloc.

use std::process::ExitCode;

use submeter_alloc::Sampled;
use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::Jemalloc;

#[global_allocator]
static HEAP: Sampled<Jemalloc> = Sampled::new(Jemalloc);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Jemalloc, Rung::Sampled)
}
