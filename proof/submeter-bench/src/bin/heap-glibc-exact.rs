//! A program of the table `alloc`: `Exact` around glibc.

use std::alloc::System;

use submeter_alloc::Exact;

submeter_heaps::program!(Glibc, Exact, Exact<System> = Exact::new(System));
