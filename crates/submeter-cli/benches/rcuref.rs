//! Prints the `rcuref` table and its ratios: `cargo bench -p submeter-cli --bench rcuref [SECONDS]`.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::time::Duration;

#[path = "../src/bench/rcuref.rs"]
mod rcuref;

fn main() -> std::io::Result<()> {
    // Cargo passes `--bench` too.
    let seconds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let rows = rcuref::rows(Duration::from_secs(seconds))?;
    for cpus in ["1", "all"] {
        let of = |variant| {
            rows.iter()
                .find(|row| row.params[0].1 == cpus && row.variant == variant)
                .map(|row| row.value)
        };
        for row in rows.iter().filter(|row| row.params[0].1 == cpus) {
            let ratio = of("rcuref").unwrap_or(f64::NAN) / row.value;
            println!(
                "{} cpus={cpus} {:<14} {:>12.0} {} ({:>3} samples)  rcuref is {ratio:.3}x",
                row.table,
                row.variant,
                row.value,
                row.unit,
                row.samples.len()
            );
        }
    }
    Ok(())
}
