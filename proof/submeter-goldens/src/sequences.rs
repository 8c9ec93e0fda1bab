//! One function for each sequence.

use submeter_sys::{AddOutcome, CpuRows, Gated, Rseq};

/// The offset of the marks in a row, the same as in the libraries.
const MARKS_AT: usize = 0x3f80_0000;

macro_rules! sequence {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $body:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The same as for the sequence of this name.
        // SAFETY: 1. No other symbol has this name: only this package begins one so.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe fn $name($($arg: $type),*) -> $out {
            // SAFETY: 1. The sequence's own conditions: the caller's promise, passed on.
            unsafe { $body }
        }
    };
}

sequence!(/// `add`
    submeter_codegen_add(rseq: Rseq, word: *mut i64, n: i64) -> bool = rseq.add(word, n));
sequence!(/// `add_packed`
    submeter_codegen_add_packed(rseq: Rseq, words: *mut i64, n: i64) -> bool = rseq.add_packed(words, n));
sequence!(/// `add_while`, a get
    submeter_codegen_get(rseq: Gated, word: *mut i64, mode: *const u32) -> bool
    = rseq.add_while::<1>(word, mode));
sequence!(/// `add_while`, a put
    submeter_codegen_put(rseq: Gated, word: *mut i64, mode: *const u32) -> bool
    = rseq.add_while::<-1>(word, mode));
sequence!(/// `add_value_while`
    submeter_codegen_add_value_while(rseq: Gated, word: *mut i64, mode: *const u32, n: i64) -> bool
    = rseq.add_value_while(word, mode, n));
sequence!(/// `add_capped`
    submeter_codegen_add_capped(rseq: Gated, word: *mut i64, mode: *const u32, n: i64, cap: u64) -> bool
    = rseq.add_capped(word, mode, n, cap));
sequence!(/// `add_carry`
    submeter_codegen_add_carry(rseq: Rseq, word: *mut i64, n: i64) -> AddOutcome
    = rseq.add_carry(word, n));
sequence!(/// `add_marked`
    submeter_codegen_add_marked(
        rseq: Rseq, word: *mut i64, n: i64, marks: *const u64, bit: u32) -> AddOutcome
    = rseq.add_marked(word, n, marks, bit));
sequence!(/// `add_within`
    submeter_codegen_add_within(rseq: Rseq, word: *mut i64, n: i64, mask: u64) -> bool
    = rseq.add_within(word, n, mask));
sequence!(/// `add_indexed_within`
    submeter_codegen_add_indexed_within(rows: &CpuRows, index: u32, n: i64, mask: u64) -> bool
    = rows.add_marked_within::<MARKS_AT>(index, n, mask));
