//! Every delay point inside every sequence, crossed with everything that may happen to a thread there.
//!
//! `RUSTFLAGS="--cfg submeter_inject" cargo test -p submeter-sys --test inject --target-dir target/inject`
#![cfg(not(miri))]
#![cfg_attr(submeter_inject, expect(unsafe_code, reason = "sequences, signals and affinity"))]

#[cfg(submeter_inject)]
mod common;
#[cfg(submeter_inject)]
#[path = "inject/crossing.rs"]
mod crossing;

#[cfg(not(submeter_inject))]
#[test]
fn delay_points_are_compiled_out() {
    eprintln!("skipped: needs RUSTFLAGS=\"--cfg submeter_inject\"");
}
