//! The compiled fast paths must equal the reviewed assembly in `asm/<isa>/<function>.asm`.
//!
//! The test compiles the library for both instruction sets, which takes most of a minute, and
//! therefore runs only with `SUBMETER_GOLDENS=1`, which `.ci/run goldens` sets. `SUBMETER_BLESS=1`
//! runs it too and rewrites the golden files; the diff is then reviewed like source.
//!
//! **Registers are numbered** in order of appearance, those of an `asm!` first, and keep their
//! width. The register allocator's choice depends on the surrounding function and is not reviewed;
//! the numbering keeps what is: the instructions, the shape of every operand, and which operands
//! are the same register. Labels are numbered the same way.
// The test compiles without these flags, so running it under them would only repeat it.
#![cfg(not(any(miri, loom, submeter_portable, submeter_inject)))]

use std::io::{self, Write};
use std::sync::Once;

mod asm;
mod compile;
mod rcuref;
mod sequences;
mod updates;

/// Whether the golden files are to be rewritten.
fn bless() -> bool {
    is_set("SUBMETER_BLESS")
}

/// Returns whether to compile at all; if not, prints so once for all tests, in a way that the test
/// harness does not capture.
fn wanted() -> bool {
    static SAY: Once = Once::new();
    let wanted = is_set("SUBMETER_GOLDENS") || bless();
    if !wanted {
        SAY.call_once(|| {
            let line = "skipped: golden assembly: .ci/run goldens compiles and compares it\n";
            io::stderr().write_all(line.as_bytes()).expect("stderr is open");
        });
    }
    wanted
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}
