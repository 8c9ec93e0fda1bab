//! The past as rows of blocks; with one row, a sparkline.

/// Eighths of a cell, from the bottom.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws one column of cells per sample, the newest to the right, scaled up to `most`. Returns the
/// rows, top to bottom. Zero is the thinnest block, because a blank is a moment without a figure.
///
/// Blocks are used rather than Braille dots. Those are finer but put two samples in a cell; fonts
/// lack them more often, and a terminal is wider than the past is long.
pub(super) fn rows(
    past: &[Option<f64>],
    most: f64,
    (width, height): (usize, usize),
) -> Vec<String> {
    let past = &past[past.len().saturating_sub(width)..];
    let steps = BLOCKS.len() * height - 1;
    let level = |value: f64| ((value / most * steps as f64).round().max(0.0) as usize).min(steps);
    let levels: Vec<Option<usize>> = past.iter().map(|value| value.map(level)).collect();
    let row = |from: usize| {
        let cell = |level: &Option<usize>| match level.and_then(|level| level.checked_sub(from)) {
            Some(above) => BLOCKS[above.min(BLOCKS.len() - 1)],
            None => ' ',
        };
        " ".repeat(width - past.len()) + &levels.iter().map(cell).collect::<String>()
    };
    (0..height).rev().map(|y| row(y * BLOCKS.len())).collect()
}

/// Returns the value at the top of a graph: the greatest figure and the limit, and at least 1, so
/// that a processor or a share that is hardly used does not look full.
pub(super) fn most(past: &[Option<f64>], limit: Option<f64>) -> f64 {
    past.iter().copied().flatten().chain(limit).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_block_per_sample_the_newest_right() {
        let past = [Some(8.0), Some(0.0), None, Some(4.0)];
        assert_eq!(rows(&past, 8.0, (5, 1)), [" █▁ ▅"]);
        assert_eq!(rows(&past, 8.0, (2, 1)), [" ▅"]);
    }

    #[test]
    fn rows_above_hold_what_exceeds_those_below() {
        let past = [Some(16.0), Some(6.0), Some(0.0), None];
        assert_eq!(rows(&past, 16.0, (4, 2)), ["█   ", "█▇▁ "]);
    }

    /// Figures beyond the scale or below zero stay within it.
    #[test]
    fn figures_beyond_the_scale_stay_within_it() {
        assert_eq!(rows(&[Some(99.0), Some(-9.0)], 8.0, (2, 1)), ["█▁"]);
        assert_eq!(most(&[Some(0.1), None], None), 1.0);
        assert_eq!(most(&[Some(3.0), None], Some(9.0)), 9.0);
    }
}
