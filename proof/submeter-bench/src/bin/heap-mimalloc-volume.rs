//! A program of the table `alloc`: `Metered` around mimalloc.

use submeter_alloc::Metered;
use submeter_peers::heaps::MiMalloc;

submeter_heaps::program!(Mimalloc, Volume, Metered<MiMalloc> = Metered::new(MiMalloc));
