//! Log-linear buckets: four for each power of two, so that a bucket is at most 25 % wide.

use std::fmt;

/// Number of sub-buckets per power of two, as a power of two itself: 2 bits, 4 sub-buckets.
const SUB_BITS: u32 = 2;

/// The buckets of a histogram.
///
/// Values up to `2^low` share the first bucket, values above `2^high` the last; between them each
/// power of two is divided into four equal parts. A quantile is therefore off by at most 12.5 %
/// (half a bucket). A bucket includes its upper bound and excludes its lower one, as in Prometheus
/// and OpenTelemetry, so that exports have the same bounds and no value moves to another bucket.
///
/// # Examples
/// ```
/// use submeter::Buckets;
///
/// let buckets = Buckets::powers(8, 20);
/// assert!(buckets.upper(buckets.index(1000)).is_some_and(|upper| upper >= 1000));
/// assert_eq!(buckets.len(), (20 - 8) * 4 + 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buckets {
    low: u8,
    high: u8,
}

impl Buckets {
    /// Buckets for latencies in nanoseconds: 256 ns (2^8) to 69 s (2^36), 114 buckets.
    pub const LATENCY_NS: Buckets = Buckets::powers(8, 36);

    /// Creates buckets for values from `2^low` to `2^high`.
    ///
    /// # Panics
    /// Unless `2 ≤ low < high ≤ 62`.
    #[must_use]
    pub const fn powers(low: u8, high: u8) -> Buckets {
        assert!(low >= 2 && low < high && high <= 62, "2 <= low < high <= 62");
        Buckets { low, high }
    }

    /// Returns the number of buckets, including the two open ones.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(self) -> usize {
        (((self.high - self.low) as usize) << SUB_BITS) + 2
    }

    /// Returns the bucket of `value`.
    #[must_use]
    pub const fn index(self, value: u64) -> usize {
        if value <= 1 << self.low {
            return 0;
        }
        if value > 1 << self.high {
            return self.len() - 1;
        }
        // Buckets include their upper bounds: less one, whole numbers up to a bound are those below
        // it.
        let value = value - 1;
        let exponent = 63 - value.leading_zeros();
        let sub = (value >> (exponent - SUB_BITS)) & ((1 << SUB_BITS) - 1);
        1 + (((exponent - self.low as u32) as usize) << SUB_BITS) + sub as usize
    }

    /// Returns the largest value of bucket `index`, or `None` for the last bucket, which is open.
    #[must_use]
    pub const fn upper(self, index: usize) -> Option<u64> {
        if index + 1 >= self.len() {
            return None;
        }
        // Bucket `i ≥ 1` begins just above the value that is `i - 1` quarter octaves above `2^low`.
        let quarters = index as u64;
        let exponent = self.low as u64 + (quarters >> SUB_BITS);
        let sub = quarters & ((1 << SUB_BITS) - 1);
        Some((1 << exponent) + (sub << (exponent - SUB_BITS as u64)))
    }
}

/// A copy of a distribution at one point in time.
///
/// # Examples
/// ```
/// # use submeter::{Buckets, Nanoseconds, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let latency = schema.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
/// # let tree = Tree::new(schema.build()?)?;
/// for ms in 1..=100 {
///     tree.root().record(latency, ms * 1_000_000);
/// }
/// let seen = tree.root().sum_histogram(latency);
/// assert_eq!((seen.count(), seen.sum()), (100, 5_050_000_000));
/// assert_eq!(seen.counts().len(), Buckets::LATENCY_NS.len());
/// assert!(seen.quantile(0.99) > seen.quantile(0.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Buckets,
    counts: Vec<u64>,
    sum: u64,
}

/// Writes `3 values, 5000 at the median, 9216 at the 99th percentile`, or only the count if it
/// is 0.
impl fmt::Display for HistogramSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.count())?;
        if let (Some(median), Some(tail)) = (self.quantile(0.5), self.quantile(0.99)) {
            write!(f, ", {median} at the median, {tail} at the 99th percentile")?;
        }
        Ok(())
    }
}

impl HistogramSnapshot {
    pub(crate) fn new(buckets: Buckets, counts: Vec<u64>, sum: u64) -> Self {
        debug_assert_eq!(counts.len(), buckets.len());
        HistogramSnapshot { buckets, counts, sum }
    }

    /// Returns the distribution of no values.
    pub(crate) fn none(buckets: Buckets) -> Self {
        HistogramSnapshot { buckets, counts: vec![0; buckets.len()], sum: 0 }
    }

    /// Returns how many values were recorded, at most `u64::MAX`.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// Returns the exact sum of the recorded values (not computed from the buckets).
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the buckets' layout.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        self.buckets
    }

    /// Returns the count of each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the mean, or `None` when nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Returns the middle of the bucket in which the quantile `q` (0 to 1) falls, or `None` when
    /// nothing was recorded. Off by at most half a bucket: 12.5 %.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Buckets, Nanoseconds, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let latency = schema.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
    /// # let tree = Tree::new(schema.build()?)?;
    /// for ms in 1..=100 {
    ///     tree.root().record(latency, ms * 1_000_000);
    /// }
    /// let seen = tree.root().sum_histogram(latency);
    /// let median = seen.quantile(0.5).expect("not empty");
    /// assert!((45_000_000..60_000_000).contains(&median), "{median}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, &n) in self.counts.iter().enumerate() {
            seen = u64::saturating_add(seen, n);
            if seen >= rank {
                let lower = if index == 0 { 0 } else { self.buckets.upper(index - 1).unwrap_or(0) };
                // The last bucket has no upper end; only its lower end is known.
                let upper = self.buckets.upper(index).unwrap_or(lower);
                // For a bucket with one possible value, which is its upper bound, this is that
                // value.
                return Some(upper - (upper - lower) / 2);
            }
        }
        None
    }

    /// Returns this distribution minus an earlier one of the same metric: the values recorded in
    /// between.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Buckets, Nanoseconds, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let latency = schema.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
    /// # let tree = Tree::new(schema.build()?)?;
    /// for ms in 1..=100 {
    ///     tree.root().record(latency, ms * 1_000_000);
    /// }
    /// let seen = tree.root().sum_histogram(latency);
    /// tree.root().record(latency, 1_000_000);
    /// assert_eq!(tree.root().sum_histogram(latency).since(&seen).count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let counts =
            self.counts.iter().zip(&earlier.counts).map(|(a, b)| a.saturating_sub(*b)).collect();
        HistogramSnapshot {
            buckets: self.buckets,
            counts,
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value is at most its bucket's upper bound, and above the previous bucket's.
    #[test]
    fn every_value_has_its_bucket() {
        let borders = |e: u32| {
            let quarters = (4u128..8).map(move |quarter| (quarter << e) >> 2);
            quarters.flat_map(|border| [border.saturating_sub(1), border, border + 1])
        };
        let borders = (0..64).flat_map(borders).map(|value| value as u64);
        let values: Vec<u64> = borders.chain((0..1_000).map(|i| i * i * 3_700)).collect();
        let all =
            (2..62).flat_map(|low| (low + 1..=62).map(move |high| Buckets::powers(low, high)));
        for buckets in all {
            for &value in &values {
                let index = buckets.index(value);
                assert!(index < buckets.len());
                if let Some(upper) = buckets.upper(index) {
                    assert!(value <= upper, "{value} in bucket {index} to {upper}");
                }
                if index > 0 {
                    let lower = buckets.upper(index - 1).expect("only the last is open");
                    assert!(value > lower, "{value} in bucket {index} above {lower}");
                }
            }
        }
    }

    /// Counts stop at the largest number and do not wrap.
    #[test]
    fn counts_saturate_at_64_bits() {
        let buckets = Buckets::LATENCY_NS;
        let mut counts = vec![0; buckets.len()];
        counts[3] = u64::MAX;
        counts[9] = u64::MAX;
        let snapshot = HistogramSnapshot::new(buckets, counts, 7);
        assert_eq!(snapshot.count(), u64::MAX);
        assert_eq!(snapshot.quantile(0.5), snapshot.quantile(1.0), "all that is known is there");
        assert_eq!(snapshot.mean(), Some(7.0 / u64::MAX as f64));
    }

    #[test]
    fn quantiles_are_within_half_a_bucket() {
        let buckets = Buckets::LATENCY_NS;
        let mut counts = vec![0; buckets.len()];
        let mut sum = 0;
        for value in 1..=100_000u64 {
            counts[buckets.index(value * 1000)] += 1;
            sum += value * 1000;
        }
        let snapshot = HistogramSnapshot::new(buckets, counts, sum);
        assert_eq!(snapshot.count(), 100_000);
        for q in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let truth = q * 100_000_000.0;
            let got = snapshot.quantile(q).expect("not empty") as f64;
            assert!((got - truth).abs() / truth <= 0.13, "q {q}: {got} for {truth}");
        }
        assert_eq!(snapshot.mean(), Some(50_000_500.0));
    }
}
