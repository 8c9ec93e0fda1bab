//! Tests that share a process.
//!
//! Apart are `worlds`, whose tests run in processes of their own while this machine is quiet,
//! `inject`, whose delays every sequence of the process meets, and `reentrant_probe`, which has an
//! allocator of its own.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "the sequences are unsafe to call")]

#[cfg(all(target_os = "linux", not(submeter_portable)))]
mod perf_event;
mod rows;
mod sequences;
mod stop;
