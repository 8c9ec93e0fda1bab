//! Prints the tables `percpu_ref` and `kill`, with ratios: `cargo bench -p submeter-cli --bench percpu_ref [SECONDS]`.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::time::Duration;

#[path = "../src/bench/percpu_ref.rs"]
mod percpu_ref;

fn main() -> std::io::Result<()> {
    // Cargo passes `--bench` too.
    let seconds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(10);
    let rows = percpu_ref::rows(Duration::from_secs(seconds))?;
    for row in &rows {
        let params: Vec<String> =
            row.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let base = rows.iter().find(|base| {
            let variant = if row.table == "kill" { "membarrier" } else { "atomic" };
            let same = |at: usize| base.params[at] == row.params[at];
            base.variant == variant
                && same(0)
                && same(row.params.len() - 1)
                && (row.table == "kill" || same(1))
        });
        let ratio = base.map_or(f64::NAN, |base| row.value / base.value);
        println!(
            "{} {:<40} {:<20} {:>14.3} {} ({} samples)  {ratio:.3}x",
            row.table,
            params.join(" "),
            row.variant,
            row.value,
            row.unit,
            row.samples.len()
        );
    }
    Ok(())
}
