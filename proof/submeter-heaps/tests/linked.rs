//! A program with an allocator other than the required one says so.

use std::alloc::System;

use submeter_alloc::Exact;
use submeter_heaps::{Inner, Rung, difference};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

fn main() {
    let is = |inner, rung| difference(inner, rung).is_none();
    assert!(is(Inner::Glibc, Rung::Exact), "{:?}", difference(Inner::Glibc, Rung::Exact));
    for rung in [Rung::Bare, Rung::Volume, Rung::Sampled, Rung::OwnCounts(|_| ())] {
        assert!(!is(Inner::Glibc, rung), "{rung:?}");
    }
    for inner in [Inner::Mimalloc, Inner::Jemalloc] {
        assert!(!is(inner, Rung::Exact), "{inner:?}");
    }
}
