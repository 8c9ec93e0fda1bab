//! A program of the table `alloc`: jemalloc alone.

use submeter_peers::heaps::Jemalloc;

submeter_heaps::program!(Jemalloc, Bare, Jemalloc = Jemalloc);
