//! A value with its bound.

use std::cmp::Ordering;

/// An approximate value: the truth lies between [`low`](Approximate::low) and
/// [`high`](Approximate::high). Each add that has not returned may or may not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximate {
    low: i64,
    width: u64,
}

impl Approximate {
    pub(super) fn new(low: i64, width: u64) -> Approximate {
        Approximate { low, width }
    }

    /// Returns the lowest possible value.
    #[must_use]
    pub fn low(self) -> i64 {
        self.low
    }

    /// Returns the highest possible value.
    #[must_use]
    pub fn high(self) -> i64 {
        self.low.wrapping_add_unsigned(self.width)
    }

    /// Returns the middle, which is off by at most [`max_error`](Approximate::max_error).
    #[must_use]
    pub fn value(self) -> i64 {
        self.low.wrapping_add_unsigned(self.width / 2)
    }

    /// Returns the maximum distance of [`value`](Approximate::value) from the truth.
    #[must_use]
    pub fn max_error(self) -> u64 {
        self.width.div_ceil(2)
    }

    /// Returns how the truth compares with `rhs`, or `None` where the bound does not decide.
    #[must_use]
    pub fn compare(self, rhs: i64) -> Option<Ordering> {
        // Not `high`: near the ends of an i64 it wraps around, and so may the truth.
        let high = self.low.checked_add_unsigned(self.width)?;
        match (self.low.cmp(&rhs), high.cmp(&rhs)) {
            (low, high) if low == high => Some(low),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn compare_decides_exactly_outside_of_the_window() {
        let read = Approximate::new(10, 5);
        assert_eq!(read.compare(9), Some(Ordering::Greater));
        for inside in 10..=15 {
            assert_eq!(read.compare(inside), None, "{inside}");
        }
        assert_eq!(read.compare(16), Some(Ordering::Less));
        assert_eq!(Approximate::new(10, 0).compare(10), Some(Ordering::Equal));
        // The truth may have wrapped around.
        assert_eq!(Approximate::new(i64::MAX - 1, 5).compare(0), None);
    }
}
