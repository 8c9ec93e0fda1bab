//! Tests that share a process.
//!
//! Some need a process of their own: the tests of `worlds`, `inject`, whose delays affect every
//! sequence of the process, and `reentrant_probe`, which has an allocator of its own.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "the sequences are unsafe to call")]

#[cfg(all(target_os = "linux", not(submeter_portable)))]
mod perf_event;
mod rows;
mod sequences;
mod stop;
