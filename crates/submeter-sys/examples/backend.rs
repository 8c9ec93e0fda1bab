//! Prints which backend this process gets, and why, in one line: what a boot of another kernel
//! shows first.
//!
//! Run with `cargo run -p submeter-sys --example backend`.

fn main() {
    let probe = submeter_sys::probe();
    println!("backend: {}: {}", probe.backend.name(), probe.reason);
}
