//! Tests that share a process.
//!
//! Some tests need a process of their own: `misuse`, since a process has one hook, and
//! `percpu_ref_inject`, since its delays affect every sequence of the process. Tests that fork or
//! handle signals are in `proof/submeter-testkit`.
#![cfg(not(loom))]

mod common;
mod counter;
mod counter_limited;
mod counter_oracle;
mod counter_torn;
mod met;
mod panics;
mod percpu_arc;
mod percpu_ref;
mod percpu_ref_modes;
mod percpu_ref_oracle;
mod percpu_ref_wait;
mod stop;
mod storage;
mod trim;
mod witness;
