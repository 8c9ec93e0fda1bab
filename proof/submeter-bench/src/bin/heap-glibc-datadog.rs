//! A program of the table `alloc`: DataDog's sampler around glibc, which tells probes of a sample.

use std::alloc::System;
use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::SampledAllocator;

#[global_allocator]
static HEAP: SampledAllocator<System> = SampledAllocator::DEFAULT;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Bare)
}
