//! A program of the table `alloc`: glibc alone.

use std::alloc::System;
use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};

#[global_allocator]
static HEAP: System = System;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Bare)
}
