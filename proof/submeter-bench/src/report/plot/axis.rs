//! Axes: the position of each value, and the values that get a grid line.
//!
//! plotters has different types for linear and logarithmic axes, and picks its own ticks. One type
//! for both keeps each plot a single function, and lets an axis show the measured values.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// If the largest value is more than this multiple of the smallest, a linear axis shows only the
/// largest.
const LINEAR_MAX: f64 = 20.0;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// Makes an axis for values that are compared by length: it starts at zero, unless they differ
    /// too much.
    pub(super) fn of_values(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (low, high) = ends(values);
        if low > 0.0 && high > low * LINEAR_MAX {
            return Axis::logarithmic(low / 1.3, high * 1.3);
        }
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        Axis::linear(low.min(0.0), high)
    }

    /// Makes an axis for values that were chosen, such as numbers of CPUs: they are its ticks.
    pub(super) fn of_choices(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (low, high) = ends(values.clone());
        let mut axis = if low > 0.0 && high >= low * LINEAR_MAX {
            Axis::logarithmic(low, high)
        } else {
            let room = if high > low { (high - low) * 0.04 } else { 0.5 };
            Axis::linear(low - room, high + room)
        };
        let mut chosen: Vec<f64> = values.collect();
        chosen.sort_by(f64::total_cmp);
        chosen.dedup();
        axis.ticks.clear();
        // The labels of ticks closer than this would overlap.
        for value in chosen {
            let last = axis.ticks.last();
            if last.is_none_or(|last| axis.place(value) - axis.place(*last) > 0.055) {
                axis.ticks.push(value);
            }
        }
        axis
    }

    /// Makes an axis of `count` lines, the first at the top.
    pub(super) fn of_lines(count: usize) -> Axis {
        let ticks = (0..count).map(|line| -(line as f64)).collect();
        Axis { low: 0.5 - count as f64, high: 0.5, logarithmic: false, ticks }
    }

    /// Makes an axis of decades.
    fn logarithmic(low: f64, high: f64) -> Axis {
        let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let every = if high / low > 1e8 { 2 } else { 1 };
        let within: &[f64] = match high / low {
            narrow if narrow < 30.0 => &[1.0, 2.0, 5.0],
            narrow if narrow < 1000.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = decades.filter(|power| power % every == 0);
        let all = powers.flat_map(|power| within.iter().map(move |n| n * 10f64.powi(power)));
        let ticks = all.filter(|tick| (low * 0.999..=high * 1.001).contains(tick)).collect();
        Axis { low, high, logarithmic: true, ticks }
    }

    fn linear(low: f64, high: f64) -> Axis {
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * power >= rough).unwrap_or(10.0);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        let ticks = (first..=last).map(|n| n as f64 * step).collect();
        Axis { low, high, logarithmic: false, ticks }
    }

    /// Returns the value at the start of the axis, where bars begin.
    pub(super) fn start(&self) -> f64 {
        if self.logarithmic { self.low } else { self.low.max(0.0) }
    }

    /// Returns whether the axis is logarithmic, so that lengths mean nothing.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Returns the share of the axis that is below `value`.
    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.place(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        value.to_string()
    }
}

/// Finds the smallest and the largest value; zero and one if there are none.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let both = values.map(|value| (value, value));
    both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_show_zero_or_decades() {
        let near = Axis::of_values([3.0, 10.0].into_iter());
        assert_eq!(near.ticks, [0.0, 5.0, 10.0]);
        assert_eq!(near.start(), 0.0);
        let far = Axis::of_values([1.0, 1e4].into_iter());
        assert_eq!(far.ticks, [1.0, 10.0, 100.0, 1e3, 1e4]);
        assert!(far.is_logarithmic());
        assert_eq!(far.map(&100.0, (0, 100)), 50);
        assert_eq!(near.map(&1e9, (0, 100)), 100, "values outside are drawn at the edge");
    }

    #[test]
    fn choices_are_ticks_unless_they_would_overlap() {
        let cpus = Axis::of_choices([1.0, 2.0, 4.0, 8.0].into_iter());
        assert_eq!(cpus.ticks, [1.0, 2.0, 4.0, 8.0]);
        let bytes = Axis::of_choices([0.0, 1.0, 512.0].into_iter());
        assert_eq!(bytes.ticks, [0.0, 512.0]);
        let one = Axis::of_choices([3.0].into_iter());
        assert_eq!(one.ticks, [3.0]);
        assert_eq!(one.map(&3.0, (0, 100)), 50);
    }

    #[test]
    fn an_axis_without_values_goes_from_zero_to_one() {
        for axis in [Axis::of_values([].into_iter()), Axis::of_values([0.0].into_iter())] {
            assert!(axis.map(&0.0, (0, 100)) == 0 && axis.high > axis.low);
        }
    }
}
