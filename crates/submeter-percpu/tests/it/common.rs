//! What the tests of per-CPU types share.

use std::time::Duration;

use submeter_percpu::Area;
use submeter_sys::{Backend, cpu, probe};

/// Runs `test` on the backend in use and on every backend below it.
pub(crate) fn on_every_backend(test: impl Fn(&Area)) {
    on_every_backend_with(0, test);
}

/// The same in areas with this many shared rows.
pub(crate) fn on_every_backend_with(shared_rows: usize, test: impl Fn(&Area)) {
    let mut backends = vec![Backend::LockedByThread, Backend::LockedByCpu];
    if probe().rseq().is_some() {
        backends.push(probe().backend);
    } else {
        eprintln!("skipped on rseq: {}", probe().reason);
    }
    for backend in backends {
        test(&Area::with_backend(backend, |_| shared_rows).expect("address space"));
    }
}

/// Moves the calling thread to another CPU, the more so the more `round` grows.
pub(crate) fn migrate(round: usize) {
    let possible = cpu::possible().unwrap_or(1);
    // Refused where that CPU is not ours, or none can be chosen: then another thread's turn has to
    // do.
    if cpu::set_affinity(&[round % possible]).is_err() {
        std::thread::yield_now();
    }
}

/// A deadline that only a lost wake-up, or a lost reference, misses.
pub(crate) fn soon() -> Duration {
    Duration::from_secs(60)
}

/// `full`, or a hundredth under Miri, which takes microseconds for each step.
pub(crate) const fn rounds(full: u32) -> u32 {
    if cfg!(miri) { full / 100 + 2 } else { full }
}
