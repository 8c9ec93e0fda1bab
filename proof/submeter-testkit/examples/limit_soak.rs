//! Charges a tree whose limits are always reached, and checks every refusal and every total:
//!
//! ```text
//! cargo run --release -p submeter-testkit --features long --example limit_soak -- --seconds 600
//! ```
//!
//! A limit that is exceeded, a refusal of what fits, a charge that waits in vain and a total that
//! is wrong end it with a panic, which names them. Ctrl-C ends it with its summary.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use submeter_testkit::LimitSoak;

/// Soak test of limits: threads charge and release; those that are refused are tried again with all
/// others paused.
#[derive(Parser)]
struct Arguments {
    /// Duration in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Threads that charge.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Seed of the random operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Arguments { seconds, threads, seed } = Arguments::parse();
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
    {
        eprintln!("limit_soak: no handler for SIGINT: {error}");
        return ExitCode::from(2);
    }
    let (start, total) = (Instant::now(), Duration::from_secs(seconds));
    let mut soak = LimitSoak::new(seed);
    let mut said = start;
    // Relaxed: the flag guards no other data.
    while start.elapsed() < total && !stop.load(Ordering::Relaxed) {
        soak.strict(threads, 200_000);
        soak.wild(50_000);
        soak.exact(8, 100);
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            println!("limit_soak: {:4.0} s: {:?}", start.elapsed().as_secs_f64(), soak.tally());
        }
    }
    println!(
        "limit_soak: {:.0} s, {threads} threads, seed {seed}: {:?}; no limit exceeded, nothing refused that fits, \
         all that waited were served",
        start.elapsed().as_secs_f64(),
        soak.tally(),
    );
    ExitCode::SUCCESS
}
