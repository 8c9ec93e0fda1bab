//! A program of the table `alloc`: `Sampled` around mimalloc.

use std::process::ExitCode;

use submeter_alloc::Sampled;
use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::MiMalloc;

#[global_allocator]
static HEAP: Sampled<MiMalloc> = Sampled::new(MiMalloc);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Mimalloc, Rung::Sampled)
}
