//! Prints in one line which backend this process gets, and why: the first thing that a boot of
//! another kernel shows.
//!
//! Run with `cargo run -p submeter-sys --example backend`.

fn main() {
    let probe = submeter_sys::probe();
    println!("backend: {}: {}", probe.backend.name(), probe.reason);
}
