//! What counters cost: their operations on this machine.
//!
//! `cargo run --release -p submeter-percpu --example counter_cost`
//!
//! Everything is measured in one process, in turn; a figure is the best of many short samples,
//! unless it says otherwise: other load only adds to a cost.

mod operations;
mod sample;

fn main() -> std::io::Result<()> {
    println!("{} possible CPUs, {}", cpus(), submeter_sys::probe().reason);
    operations::run()
}

fn cpus() -> usize {
    submeter_sys::probe().cpus.unwrap_or(1)
}
