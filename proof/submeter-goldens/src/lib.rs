//! The fast paths as functions whose names appear unmangled in the assembly.
//!
//! This is not a library to use: `tests/goldens` compiles it for each instruction set and compares
//! the assembly with the reviewed files in `asm`.
#![expect(unsafe_code, reason = "unmangled names, and the sequences")]

pub mod rcuref;
pub mod sequences;
pub mod updates;
