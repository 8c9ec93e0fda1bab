//! Every delay point inside the sequences, crossed with a kill, a migration, a signal and a barrier there.
//!
//! `RUSTFLAGS="--cfg submeter_inject" cargo test -p submeter-percpu --test percpu_ref_inject --target-dir target/inject`
#![cfg(not(any(loom, shuttle, miri)))]

#[cfg(submeter_inject)]
#[path = "inject/crossing.rs"]
mod crossing;
#[cfg(submeter_inject)]
#[path = "common/raw.rs"]
#[allow(unsafe_code, dead_code, reason = "signals and affinity; shared with other tests")]
mod raw;

#[cfg(not(submeter_inject))]
#[test]
fn delay_points_are_compiled_out() {
    eprintln!("skipped: needs RUSTFLAGS=\"--cfg submeter_inject\"");
}
