//! A program of the table `alloc`: mimalloc alone.

use submeter_peers::heaps::MiMalloc;

submeter_heaps::program!(Mimalloc, Bare, MiMalloc = MiMalloc);
