//! What the compiler makes of the fast paths equals what was reviewed: `asm/<isa>/<function>.asm`.
//!
//! Compiles the library for both instruction sets, which takes most of a minute: so only where
//! `SUBMETER_GOLDENS=1` asks for it, as `.ci/run goldens` does. `SUBMETER_BLESS=1` asks too, and
//! rewrites the golden files; the diff is then reviewed like source.
//!
//! **Registers are numbered** in order of appearance, those of an `asm!` first, keeping width.
//! Which register the allocator picks depends on the function around, and is not part of what was
//! reviewed; the numbering keeps what is: the instructions, the shape of every operand, and which
//! operands are the same register. Labels are numbered the same way.
// It compiles by itself, without these flags: under them it would find the same again.
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

/// Whether to compile at all; says so if not, once for all tests, and not captured with what else a
/// test prints.
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
