//! A program of the table `alloc`: jemalloc alone, whose own counts a switch reads.

use submeter_peers::heaps::{Jemalloc, declare_own_counts};

submeter_heaps::program!(Jemalloc, OwnCounts(declare_own_counts), Jemalloc = Jemalloc);
