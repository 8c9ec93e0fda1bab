//! A kill, a migration, a signal and a barrier at every delay point inside the sequences.
//!
//! `RUSTFLAGS="--cfg submeter_inject" cargo test -p submeter-percpu --test percpu_ref_inject
//! --target-dir target/inject`
#![cfg(not(any(loom, miri)))]

#[cfg(submeter_inject)]
mod crossing;
#[cfg(submeter_inject)]
#[expect(unsafe_code, reason = "signals and affinity")]
mod raw;
#[cfg(submeter_inject)]
#[path = "../it/stop.rs"]
mod stop;

#[cfg(not(submeter_inject))]
#[test]
fn percpu_ref_4_kill_meets_every_point() {
    eprintln!("skipped: sequences have no delay points in this build: .ci/run inject");
}
