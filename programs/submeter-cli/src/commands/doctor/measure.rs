//! Nanoseconds per operation, on one thread alone.
//!
//! Every kind of work is measured once per round, so that a disturbance of the machine affects all
//! of them. The reported value is the median of the rounds; the interquartile range says how far to
//! trust it.

use std::time::{Duration, Instant};

use serde::Serialize;

const ROUNDS: usize = 41;
/// Duration of one sample.
const SAMPLE: Duration = Duration::from_micros(300);

/// Repeats one operation as often as asked.
pub(super) type Work = Box<dyn Fn(u64)>;

/// The middle of the samples, in nanoseconds per operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The first quartile.
    pub(crate) low: f64,
    /// The third quartile.
    pub(crate) high: f64,
}

/// Measures each kind of work.
pub(super) fn measure<const N: usize>(all: [Work; N]) -> [Spread; N] {
    let times = all.each_ref().map(calibrate);
    let mut samples = [[0.0; ROUNDS]; N];
    for round in 0..ROUNDS {
        for ((work, times), samples) in all.iter().zip(times).zip(&mut samples) {
            samples[round] = time(work, times).as_secs_f64() * 1e9 / times as f64;
        }
    }
    samples.map(Spread::of)
}

/// Returns how many operations make a sample.
fn calibrate(work: &Work) -> u64 {
    const FIRST: u64 = 5_000;
    work(FIRST);
    let took = time(work, FIRST).max(Duration::from_nanos(1));
    let times = FIRST as f64 * SAMPLE.as_secs_f64() / took.as_secs_f64();
    (times as u64).clamp(100, 2_000_000)
}

fn time(work: &Work, times: u64) -> Duration {
    let start = Instant::now();
    work(times);
    start.elapsed()
}

impl Spread {
    /// Sorts the samples and takes their quartiles.
    fn of<const N: usize>(mut samples: [f64; N]) -> Spread {
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples[((N - 1) * part).div_ceil(4)];
        Spread { median: at(2), low: at(1), high: at(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_and_many() {
        let one = Spread::of([2.0]);
        assert_eq!((one.low, one.median, one.high), (2.0, 2.0, 2.0));
        let many = Spread::of(std::array::from_fn::<_, 101, _>(|n| (100 - n) as f64));
        assert_eq!((many.low, many.median, many.high), (25.0, 50.0, 75.0));
    }
}
