//! A program of the table `alloc`: glibc alone.

use std::alloc::System;

submeter_heaps::program!(Glibc, Bare, System = System);
