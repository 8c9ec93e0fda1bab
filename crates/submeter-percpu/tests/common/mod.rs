//! What the tests of per-CPU types share.

pub(crate) mod stop;

use std::time::{Duration, Instant};

use submeter_percpu::Area;
use submeter_sys::{Rung, cpu, probe};

/// Runs `test` on the rung in use and on every rung below it.
pub(crate) fn on_every_rung(test: impl Fn(&Area)) {
    let mut rungs = vec![Rung::LockedByThread, Rung::LockedByCpu];
    if probe().rseq().is_some() {
        rungs.push(probe().rung);
    } else {
        eprintln!("skipped on rseq: {}", probe().reason);
    }
    for rung in rungs {
        test(&Area::with_rung(rung, |_| 0).expect("address space"));
    }
}

/// Moves the calling thread to another CPU, the more so the more `round` grows.
pub(crate) fn migrate(round: usize) {
    if !cfg!(miri) {
        let allowed = cpu::possible().unwrap_or(1);
        // Refused where that CPU is not ours: then it stays where it is.
        let _ = cpu::set_affinity(&[round % allowed]);
    }
}

/// A deadline that only a lost wake-up, or a lost reference, misses.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// `full`, or a hundredth under Miri, which takes microseconds for each step.
pub(crate) const fn rounds(full: u32) -> u32 {
    if cfg!(miri) { full / 100 + 2 } else { full }
}
