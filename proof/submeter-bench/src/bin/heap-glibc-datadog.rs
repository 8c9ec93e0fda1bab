//! A program of the table `alloc`: DataDog's sampler around glibc, which reports samples to probes.

use std::alloc::System;
use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::SampledAllocator;

#[global_allocator]
static HEAP: SampledAllocator<System> = SampledAllocator::DEFAULT;

fn main() -> ExitCode {
    submeter_heaps::answer(Inner::Glibc, Rung::Bare)
}
