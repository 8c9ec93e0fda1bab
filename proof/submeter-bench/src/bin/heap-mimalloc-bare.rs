//! A program of the table `alloc`: mimalloc alone.

use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::MiMalloc;

#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Mimalloc, Rung::Bare)
}
