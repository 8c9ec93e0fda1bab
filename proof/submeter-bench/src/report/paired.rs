//! What one variant adds to another where both were measured in turns: from pairs, not from means.

/// A median of ratios, and the interval that holds the true one in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Compares samples that were taken in turns, in their order. `None` for fewer than six pairs: of
/// those no interval is that certain.
///
/// The interval is that of the sign test, which asks nothing of how ratios spread: noise on a
/// shared machine has a long tail, and a mean would be its mean.
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

/// Returns how many of `n` fair coins show heads in no more than 2.5 of 100 cases, less one: how
/// many ratios are beyond each end of the interval.
fn outside(n: usize) -> usize {
    // Logarithms, as half to the power of a thousand is no number.
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
    fn the_ends_are_those_of_published_tables() {
        // Ranks from 1 on, of the binomial distribution: 6 and 1, 10 and 2, 25 and 8, 100 and 40.
        for (n, rank) in [(6, 1), (10, 2), (25, 8), (100, 40)] {
            assert_eq!(outside(n) + 1, rank, "{n}");
        }
        // Beyond the tables: n/2 − 0.98 √n.
        assert!((450..472).contains(&outside(1000)), "{}", outside(1000));
    }

    #[test]
    fn drift_that_hits_both_is_not_seen() {
        let drift: Vec<f64> = (0..40).map(|round| 100.0 + f64::from(round)).collect();
        let half_a_percent: Vec<f64> = drift.iter().map(|value| value * 1.005).collect();
        let found = ratio(&half_a_percent, &drift).expect("enough");
        assert!((found.middle - 1.005).abs() < 1e-9 && found.high - found.low < 1e-9, "{found:?}");
        assert_eq!(ratio(&drift[..5], &drift[..5]), None);
    }
}
