//! A program of the table `alloc`: `Exact` around jemalloc.

use submeter_alloc::Exact;
use submeter_peers::heaps::Jemalloc;

submeter_heaps::program!(Jemalloc, Exact, Exact<Jemalloc> = Exact::new(Jemalloc));
