//! Many short samples of several things, in turn.

use std::time::Instant;

/// Samples of each thing.
const SAMPLES: usize = 100;

/// Something that is measured: `count` operations a sample.
pub(crate) struct Thing<'a> {
    pub(crate) name: &'a str,
    pub(crate) count: u32,
    pub(crate) work: Box<dyn FnMut() + 'a>,
}

/// Returns the best of each in nanoseconds an operation: what other load adds is not theirs.
pub(crate) fn best(things: &mut [Thing<'_>]) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; things.len()];
    for _ in 0..SAMPLES {
        for (thing, best) in things.iter_mut().zip(&mut best) {
            let start = Instant::now();
            (thing.work)();
            let ns = start.elapsed().as_nanos() as f64 / f64::from(thing.count);
            *best = best.min(ns);
        }
    }
    best
}
