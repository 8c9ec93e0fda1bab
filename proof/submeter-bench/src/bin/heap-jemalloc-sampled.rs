//! A program of the table `alloc`: `Sampled` around jemalloc.

use submeter_alloc::Sampled;
use submeter_peers::heaps::Jemalloc;

submeter_heaps::program!(Jemalloc, Sampled, Sampled<Jemalloc> = Sampled::new(Jemalloc));
