//! Helpers shared by the tests of per-CPU types.

use std::sync::LazyLock;
use std::time::Duration;

use submeter_percpu::Area;
use submeter_sys::{Backend, cpu, probe};

/// Runs `test` on the backend in use and on every backend below it.
pub(crate) fn on_every_backend(test: impl Fn(&Area)) {
    on_every_backend_with(0, test);
}

/// Does the same in areas with this many shared rows.
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

/// Moves the calling thread to the CPU of this `round`.
pub(crate) fn migrate(round: usize) {
    // Cached: reading the file takes the interpreter as long as hundreds of adds.
    static POSSIBLE: LazyLock<usize> = LazyLock::new(|| cpu::possible().unwrap_or(1));
    let possible = *POSSIBLE;
    // Refused where that CPU is not ours, or the system allows no choice: yield to another thread
    // instead.
    if cpu::set_affinity(&[round % possible]).is_err() {
        std::thread::yield_now();
    }
}

/// Returns a timeout that only a lost wake-up or a lost reference exceeds.
pub(crate) fn soon() -> Duration {
    Duration::from_secs(60)
}

/// Returns `full`, or a hundredth of it under Miri, which takes microseconds per step.
pub(crate) const fn rounds(full: u32) -> u32 {
    if cfg!(miri) { full / 100 + 2 } else { full }
}
