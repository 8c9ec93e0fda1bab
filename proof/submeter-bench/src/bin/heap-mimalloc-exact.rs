//! A program of the table `alloc`: `Exact` around mimalloc.

use std::process::ExitCode;

use submeter_alloc::Exact;
use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::MiMalloc;

#[global_allocator]
static HEAP: Exact<MiMalloc> = Exact::new(MiMalloc);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Mimalloc, Rung::Exact)
}
