//! A program of the table `alloc`: `Exact` around glibc.

use std::alloc::System;
use std::process::ExitCode;

use submeter_alloc::Exact;
use submeter_heaps::{Inner, Rung};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Exact)
}
