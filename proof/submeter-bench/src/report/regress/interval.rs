//! The uncertainty of a ratio of two figures, by bootstrap resampling.

use fastrand::Rng;

/// The number of resamples. The interval leaves out one in two hundred at either end, so that a few
/// hundred cells raise few false alarms even before the floor applies.
const DRAWS: usize = 400;
const TAIL: usize = 2;

/// The measurements of a cell.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) samples: Vec<f64>,
    /// The share of the samples below the figure: a half for a median.
    pub(super) quantile: f64,
    /// Whether more is better.
    pub(super) higher: bool,
}

/// The change of a ratio: above 1 is worse.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) was: f64,
    pub(super) is: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Returns both ratios, and the confidence interval of the factor by which the new one is worse.
pub(super) fn change(was: &Cell, was_base: &Cell, is: &Cell, is_base: &Cell) -> Change {
    // The same draws in every run: a gate that fails must fail again.
    let mut random = Rng::with_seed(0x9E37_79B9_7F4A_7C15);
    let mut worse = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let mut drawn = |cell: &Cell| figure(draw(&mut random, &cell.samples), cell.quantile);
        let (before, after) = (drawn(was) / drawn(was_base), drawn(is) / drawn(is_base));
        worse.push(if is.higher { before / after } else { after / before });
    }
    worse.sort_by(f64::total_cmp);
    let whole = |cell: &Cell| figure(cell.samples.clone(), cell.quantile);
    Change {
        was: whole(was) / whole(was_base),
        is: whole(is) / whole(is_base),
        low: worse[TAIL],
        high: worse[DRAWS - 1 - TAIL],
    }
}

fn figure(mut samples: Vec<f64>, quantile: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * quantile).round() as usize]
}

fn draw(random: &mut Rng, samples: &[f64]) -> Vec<f64> {
    (0..samples.len()).map(|_| samples[random.usize(..samples.len())]).collect()
}
