//! The layout of a row.

use std::ops::Range;

use submeter_sys::{CpuRows, STRIDE};

/// The part of a row that is used; the rest is the distance to the next row.
const ROW: usize = 1 << STRIDE.ilog2();

/// Words in a row: all but the last 1/128, which holds the dirty bits (1/512 for a bit per line;
/// the rest is slack up to a round number).
pub(crate) const WORDS: usize = (ROW - ROW / 128) / 8;
/// Words in a line: a dirty bit covers 64 bytes, the unit that CPUs transfer.
pub const LINE_WORDS: usize = CpuRows::LINE_WORDS;
/// Lines in a row.
pub(crate) const LINES: usize = WORDS / LINE_WORDS;

pub(crate) const MARKS_AT: usize = WORDS * 8;
const MARK_WORDS: usize = LINES.div_ceil(64);
/// Next to the summary's first word, which is loaded together with it, so that both share a page
/// and a line.
pub(super) const LINKING_AT: usize = MARKS_AT + MARK_WORDS * 8;
pub(super) const SUMMARY_AT: usize = LINKING_AT + 8;
const SUMMARY_WORDS: usize = MARK_WORDS.div_ceil(64);
pub(super) const END: usize = SUMMARY_AT + SUMMARY_WORDS * 8;
const _: () = assert!(END <= ROW && MARKS_AT.is_multiple_of(64));
const _: () = assert!(ROW < STRIDE && STRIDE.is_multiple_of(64));

/// Returns the bytes of whole pages in `lines` of a row, from the start of the reservation: those
/// that can be given back without affecting other lines. Rows begin anywhere in a page.
pub(super) fn whole_pages(row: usize, lines: &Range<usize>, page: usize) -> Range<usize> {
    const LINE: usize = LINE_WORDS * 8;
    let from = |line: usize| row * STRIDE + line * LINE;
    let start = from(lines.start).next_multiple_of(page);
    start..(from(lines.end) / page * page).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_apart_and_keep_all_within() {
        let regions = [
            0..WORDS * 8,
            MARKS_AT..MARKS_AT + MARK_WORDS * 8,
            LINKING_AT..LINKING_AT + 8,
            SUMMARY_AT..SUMMARY_AT + SUMMARY_WORDS * 8,
        ];
        assert!(regions.is_sorted_by(|a, b| a.end <= b.start), "{regions:?}");
        assert!(regions.iter().all(|region| region.start.is_multiple_of(8) && region.end <= END));
        const { assert!(MARK_WORDS * 64 >= LINES && SUMMARY_WORDS * 64 >= MARK_WORDS) };
        // No page is shared by two rows, as one would then keep memory for the other.
        let page = if cfg!(miri) { 64 } else { 4096 };
        for row in 0..8192 {
            let Some(next) = (row + 1usize).checked_mul(STRIDE) else { break };
            assert!((row * STRIDE + END).next_multiple_of(page) <= next / page * page, "{row}");
        }
    }

    /// Returns how many of the copies of a word share a set, where there are `sets` sets of `unit`
    /// bytes each.
    fn crowd(rows: usize, unit: usize, sets: usize) -> usize {
        let mut found = vec![0; sets];
        (0..rows).for_each(|row| found[row * STRIDE / unit % sets] += 1);
        found.into_iter().max().expect("a set")
    }

    #[test]
    fn copies_are_spread_over_cache_and_tlb_sets() {
        if !cfg!(target_pointer_width = "64") || cfg!(miri) || cfg!(windows) {
            eprintln!("skipped: rows are short here: take a 64-bit system, without Miri");
            return;
        }
        // Lines: an L1 of 32 or 48 KiB. Pages of 4 and of 64 KiB: today's first- and second-level
        // TLBs.
        for (unit, sets) in [(64, 64), (4 << 10, 16), (4 << 10, 128), (64 << 10, 16)] {
            for rows in [16_usize, 64, 512] {
                let fair = rows.div_ceil(sets);
                assert!(crowd(rows, unit, sets) <= 2 * fair, "{rows} rows, {sets} sets of {unit}");
            }
        }
    }

    /// All whole pages of the lines are given back, and nothing else.
    #[test]
    fn all_whole_pages_are_given_back() {
        for page in [4096, 65_536] {
            for (row, lines) in [(0, 0..64), (1, 0..64), (3, 63..1200), (70, 5..5), (9, 0..5000)] {
                let pages = whole_pages(row, &lines, page);
                let [start, end] = [lines.start, lines.end].map(|line| row * STRIDE + line * 64);
                assert!([pages.start, pages.end].iter().all(|at| at.is_multiple_of(page)));
                assert!(pages.is_empty() || start <= pages.start && pages.end <= end);
                assert!(pages.len() + 2 * page > end - start, "{row} {lines:?} {pages:?}");
            }
        }
    }
}
