//! What one variant adds to another when they are measured alternately: computed from pairs, not
//! from means.

/// A median of ratios, and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Compares samples that were taken alternately, in order. `None` for fewer than six pairs: these
/// give no 95 % interval.
///
/// The interval is that of the sign test, which assumes nothing about the distribution of ratios:
/// noise on a shared machine has a long tail, which would dominate a mean.
pub(super) fn ratio(samples: &[f64], baseline: &[f64]) -> Option<Interval> {
    let mut ratios: Vec<f64> = samples.iter().zip(baseline).map(|(one, base)| one / base).collect();
    let n = ratios.len();
    if n < 6 {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let outside = outside(n);
    let middle = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2.0;
    Some(Interval { middle, low: ratios[outside], high: ratios[n - 1 - outside] })
}

/// Returns how many of `n` ratios lie beyond each end of the interval: the largest number of heads
/// that `n` fair coins stay at or below in at most 2.5 % of throws.
fn outside(n: usize) -> usize {
    // Logarithms, because 0.5 to the power of a thousand is not representable.
    let (mut log_of_exactly, mut sum) = (-(n as f64) * 2f64.ln(), 0.0);
    for heads in 0..n {
        sum += f64::exp(log_of_exactly);
        if sum > 0.025 {
            return heads.saturating_sub(1);
        }
        log_of_exactly += ((n - heads) as f64).ln() - ((heads + 1) as f64).ln();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_ends_match_published_tables() {
        // Ranks, counted from 1, of the binomial distribution: 6 and 1, 10 and 2, 25 and 8, 100 and
        // 40.
        for (n, rank) in [(6, 1), (10, 2), (25, 8), (100, 40)] {
            assert_eq!(outside(n) + 1, rank, "{n}");
        }
        // Beyond the tables: n/2 − 0.98 √n.
        assert!((450..472).contains(&outside(1000)), "{}", outside(1000));
    }

    #[test]
    fn drift_that_affects_both_variants_cancels_out() {
        let drift: Vec<f64> = (0..40).map(|round| 100.0 + f64::from(round)).collect();
        let half_a_percent: Vec<f64> = drift.iter().map(|value| value * 1.005).collect();
        let found = ratio(&half_a_percent, &drift).expect("enough");
        assert!((found.middle - 1.005).abs() < 1e-9 && found.high - found.low < 1e-9, "{found:?}");
        assert_eq!(ratio(&drift[..5], &drift[..5]), None);
    }
}
