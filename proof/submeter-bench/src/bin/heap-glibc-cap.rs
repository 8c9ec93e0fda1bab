//! A program of the table `alloc`: a wrapper that counts all blocks in one atomic.

use std::alloc::System;
use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Bare)
}
