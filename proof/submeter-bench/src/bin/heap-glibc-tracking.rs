//! A program of the table `alloc`: tracking-allocator around glibc, which reports each block to be
//! counted.

use std::alloc::System;
use std::process::ExitCode;

use submeter_heaps::{Inner, Tenants};
use submeter_peers::heaps::{Allocator, Tracked};

#[global_allocator]
static HEAP: Allocator<System> = Allocator::system();

/// The tenants of that library.
struct Tracking(Tracked);

impl Tenants for Tracking {
    fn share(&self) -> Tracking {
        Tracking(Tracked::new())
    }

    #[inline]
    fn run(&mut self, tenant: usize, work: impl FnOnce()) {
        self.0.run(tenant, work);
    }
}

fn main() -> ExitCode {
    let (mut tracked, mut block) = (Tracked::new(), None);
    tracked.run(0, || block = Some(Box::new([0_u8; 64])));
    assert_eq!(tracked.held(0), 64, "it counts");
    drop(block);
    submeter_heaps::answer_with(Inner::Glibc, Tracking(tracked))
}
