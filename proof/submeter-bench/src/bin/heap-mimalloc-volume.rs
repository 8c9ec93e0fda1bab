//! A program of the table `alloc`: `Metered` around mimalloc.

use std::process::ExitCode;

use submeter_alloc::Metered;
use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::MiMalloc;

#[global_allocator]
static HEAP: Metered<MiMalloc> = Metered::new(MiMalloc);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Mimalloc, Rung::Volume)
}
