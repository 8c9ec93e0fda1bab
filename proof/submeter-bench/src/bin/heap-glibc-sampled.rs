//! A program of the table `alloc`: `Sampled` around glibc.

use std::alloc::System;

use submeter_alloc::Sampled;

submeter_heaps::program!(Glibc, Sampled, Sampled<System> = Sampled::new(System));
