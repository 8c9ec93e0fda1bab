//! A program of the table `alloc`: `Sampled` around mimalloc.

use submeter_alloc::Sampled;
use submeter_peers::heaps::MiMalloc;

submeter_heaps::program!(Mimalloc, Sampled, Sampled<MiMalloc> = Sampled::new(MiMalloc));
