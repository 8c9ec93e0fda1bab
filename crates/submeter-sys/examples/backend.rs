//! Prints in one line which backend this process gets, how it waits for sequences, and why: the
//! first thing that a boot of another kernel shows.
//!
//! Run with `cargo run -p submeter-sys --example backend`.

fn main() {
    let probe = submeter_sys::probe();
    let (backend, barrier) = (probe.backend.name(), probe.barrier.name());
    println!("backend: {backend}, {barrier}: {}", probe.reason);
}
