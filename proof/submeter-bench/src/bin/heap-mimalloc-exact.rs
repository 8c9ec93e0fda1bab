//! A program of the table `alloc`: `Exact` around mimalloc.

use submeter_alloc::Exact;
use submeter_peers::heaps::MiMalloc;

submeter_heaps::program!(Mimalloc, Exact, Exact<MiMalloc> = Exact::new(MiMalloc));
