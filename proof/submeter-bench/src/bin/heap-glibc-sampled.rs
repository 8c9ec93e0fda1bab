//! A program of the table `alloc`: `Sampled` around glibc.

use std::alloc::System;
use std::process::ExitCode;

use submeter_alloc::Sampled;
use submeter_heaps::{Inner, Rung};

#[global_allocator]
static HEAP: Sampled<System> = Sampled::new(System);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Sampled)
}
