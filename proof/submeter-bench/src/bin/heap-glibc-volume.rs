//! A program of the table `alloc`: `Metered` around glibc.

use std::alloc::System;

use submeter_alloc::Metered;

submeter_heaps::program!(Glibc, Volume, Metered<System> = Metered::new(System));
