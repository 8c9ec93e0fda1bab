//! Where things lie in a row.

use submeter_sys::STRIDE_SHIFT;

pub(super) const STRIDE: usize = 1 << STRIDE_SHIFT;

/// Words in a row: all but the last 1/128, which holds the dirty bits (1/512 for a bit per line;
/// the rest is slack up to a round number).
pub(crate) const WORDS: usize = (STRIDE - STRIDE / 128) / 8;
/// Words in a line: a dirty bit is for 64 bytes, which is what CPUs pass around.
pub const LINE_WORDS: usize = 8;
/// Lines in a row.
pub(crate) const LINES: usize = WORDS / LINE_WORDS;

pub(super) const MARKS_AT: usize = WORDS * 8;
const MARK_WORDS: usize = LINES.div_ceil(64);
/// Next to the summary's first word, which is looked at together with it: a page and a line for
/// both.
pub(super) const LINKING_AT: usize = MARKS_AT + MARK_WORDS * 8;
pub(super) const SUMMARY_AT: usize = LINKING_AT + 8;
const SUMMARY_WORDS: usize = MARK_WORDS.div_ceil(64);
pub(super) const END: usize = SUMMARY_AT + SUMMARY_WORDS * 8;
const _: () = assert!(END <= STRIDE && MARKS_AT.is_multiple_of(64));

/// By how much owned rows are shifted. Strides are powers of two, so that the same line of any two
/// rows has the same low bits, and a CPU mistakes a load that follows a store to one for dependent
/// on it. Owned rows have no dirty bits, so that there is room.
pub(super) const OWNED_SHIFT: usize = if cfg!(miri) { 64 } else { 2048 };
const _: () = assert!(WORDS * 8 + OWNED_SHIFT <= STRIDE && OWNED_SHIFT.is_multiple_of(64));
