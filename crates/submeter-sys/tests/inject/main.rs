//! Everything that may happen to a thread, at every delay point inside every sequence.
//!
//! `RUSTFLAGS="--cfg submeter_inject" cargo test -p submeter-sys --test inject --target-dir
//! target/inject`
#![cfg(all(target_os = "linux", not(any(miri, submeter_portable))))]
#![cfg_attr(submeter_inject, expect(unsafe_code, reason = "sequences, signals and affinity"))]

#[cfg(submeter_inject)]
mod crossing;
#[cfg(submeter_inject)]
#[path = "../it/rows.rs"]
mod rows;
#[cfg(submeter_inject)]
#[path = "../it/stop.rs"]
mod stop;

#[cfg(not(submeter_inject))]
#[test]
fn everything_meets_all_points_of_sequences() {
    eprintln!("skipped: sequences have no delay points in this build: .ci/run inject");
}
