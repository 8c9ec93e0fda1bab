//! Runs updates, flushes, kills and creations on a large tree, and checks every total:
//!
//! ```text
//! cargo run --release -p submeter-testkit --features long --example soak -- --seconds 600
//! ```
//!
//! Every half minute, and at the end, the threads pause and every metric of every group is compared
//! with the threads' own notes. Ctrl-C ends the run with its summary and verdict. The exit code is
//! 1 if tree and notes differ.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use submeter_testkit::{Comparison, Progress, Soak};

/// Soak test of a tree: threads update, flush, kill and create; then every total is compared with
/// their notes.
#[derive(Parser)]
struct Arguments {
    /// Duration in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Groups in the tree.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    groups: u32,
    /// Threads that update, in addition to the one that flushes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Seconds between comparisons.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    compare: u64,
    /// Seed of the random operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second signal ends the process at once.
        let armed = Arc::clone(&stop);
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 130, armed)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        if let Err(error) = registered {
            eprintln!("soak: no handler for signal {signal}: {error}");
            return ExitCode::from(2);
        }
    }
    soak(&arguments, &stop)
}

fn soak(arguments: &Arguments, interrupted: &AtomicBool) -> ExitCode {
    let start = Instant::now();
    let (groups, threads) = (arguments.groups as usize, usize::from(arguments.threads));
    let mut soak = Soak::new(groups, threads, arguments.seed);
    println!(
        "soak: {groups} groups created in {:.1} s, {threads} threads, {} s; resident {}",
        start.elapsed().as_secs_f64(),
        arguments.seconds,
        mebibytes(resident_bytes()),
    );
    let start = Instant::now();
    let total = Duration::from_secs(arguments.seconds);
    let mut first_resident = None;
    let mut values = 0;
    // Relaxed: the flag guards no other data.
    while start.elapsed() < total && !interrupted.load(Ordering::Relaxed) {
        let end = (start.elapsed() + Duration::from_secs(arguments.compare)).min(total);
        round(&mut soak, start, end, interrupted);
        let comparison = soak.compare();
        values += comparison.values;
        let resident = resident_bytes();
        // After the first round, because by then every page that updates need has been touched.
        first_resident = first_resident.or(resident);
        println!(
            "soak: {:4.0} s: {} groups, {} values compared: {} differences; resident {}",
            start.elapsed().as_secs_f64(),
            comparison.groups,
            comparison.values,
            comparison.differences.len(),
            mebibytes(resident),
        );
        if !comparison.differences.is_empty() {
            return verdict(&soak, start, values, &comparison);
        }
    }
    if start.elapsed() < total {
        let after = start.elapsed().as_secs_f64();
        println!("soak: interrupted after {after:.0} of {} s", arguments.seconds);
    }
    let last_resident = resident_bytes();
    let existing = soak.settle();
    println!("soak: {existing} groups exist without holders; there should be {groups}");
    if let (Some(first), Some(last)) = (first_resident, last_resident) {
        let grown = (last as f64 - first as f64) / f64::from(1 << 20);
        println!("soak: resident memory changed by {grown:+.1} MiB since the first comparison");
    }
    let comparison = soak.compare();
    let code = verdict(&soak, start, values + comparison.values, &comparison);
    if existing == groups { code } else { ExitCode::FAILURE }
}

/// Runs until `end` after `start`, or until interrupted; prints one line per second.
fn round(soak: &mut Soak, start: Instant, end: Duration, interrupted: &AtomicBool) {
    let stop = AtomicBool::new(false);
    let mut next = start.elapsed() + Duration::from_secs(1);
    let mut last = (start.elapsed(), soak.progress().updates);
    soak.round(u64::MAX, &stop, |Progress { updates, flushes, .. }| {
        let now = start.elapsed();
        // Relaxed, both: the flags guard no other data.
        if now >= end || interrupted.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
        if now >= next {
            let per_second = (updates - last.1) as f64 / (now - last.0).as_secs_f64();
            eprintln!(
                "{:5.0} s  {updates} updates ({:.1} M/s), {flushes} flushes, resident {}",
                now.as_secs_f64(),
                per_second / 1e6,
                mebibytes(resident_bytes()),
            );
            (next, last) = (now + Duration::from_secs(1), (now, updates));
        }
    });
}

fn verdict(soak: &Soak, start: Instant, values: u64, comparison: &Comparison) -> ExitCode {
    println!("soak: {:.0} s: {}", start.elapsed().as_secs_f64(), soak.progress());
    if comparison.differences.is_empty() {
        println!("soak: conserved: {values} values compared, none differs");
        return ExitCode::SUCCESS;
    }
    for difference in &comparison.differences {
        println!("soak: {difference}");
    }
    println!("soak: NOT conserved");
    ExitCode::FAILURE
}

/// Returns the resident memory of the process; `None` without /proc.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".to_owned(), |bytes| {
        format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
    })
}
