//! A program of the table `alloc`: DataDog's sampler around glibc, which reports samples to probes.

use std::alloc::System;

use submeter_peers::heaps::SampledAllocator;

submeter_heaps::program!(Glibc, Bare, SampledAllocator<System> = SampledAllocator::DEFAULT);
