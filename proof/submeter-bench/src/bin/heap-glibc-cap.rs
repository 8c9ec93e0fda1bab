//! A program of the table `alloc`: a wrapper that counts all blocks in one atomic.

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;

use submeter_heaps::{Inner, Rung};
use submeter_peers::heaps::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn main() -> ExitCode {
    let before = HEAP.allocated();
    let block = black_box(Box::new([0_u8; 64]));
    assert_eq!(HEAP.allocated() - before, block.len(), "it counts");
    submeter_heaps::answer(Inner::Glibc, Rung::Bare)
}
