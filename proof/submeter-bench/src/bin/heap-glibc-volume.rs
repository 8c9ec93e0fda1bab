//! A program of the table `alloc`: `Metered` around glibc.

use std::alloc::System;
use std::process::ExitCode;

use submeter_alloc::Metered;
use submeter_heaps::{Inner, Rung};

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Volume)
}
