//! The fast paths under names that assembly shows as they are.
//!
//! Not a library to use: `tests/goldens` compiles it for each instruction set and compares the
//! assembly with what was reviewed, in `asm`.
#![expect(unsafe_code, reason = "a name that is not mangled, and the sequences")]

pub mod rcuref;
pub mod sequences;
pub mod updates;
