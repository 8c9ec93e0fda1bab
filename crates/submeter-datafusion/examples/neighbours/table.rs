//! Tables as text.

use std::time::Duration;

use crate::run::Round;
use crate::variants::Kind;
use crate::{Crowd, Sort};

/// Prints what the neighbours did to each other.
pub(crate) fn neighbours(alone: &[Round], rounds: &[Vec<Round>; 4]) {
    let head = |columns: [&str; 8]| {
        let [pool, queries, spilled, not_done, median, p99, of, most] = columns;
        println!(
            "{pool:<19} {queries:>17} {spilled:>15} {not_done:>8} {median:>18} {p99:>18} {of:>9} \
             {most:>8}"
        );
    };
    let (them, page) = ("analyst", "dashboard");
    head(["", them, them, them, page, page, page, "reserved"]);
    head([
        "pool",
        "queries/min",
        "spilled MB each",
        "not done",
        "median ms",
        "p99 ms",
        "not done",
        "MB, most",
    ]);
    line("(no analyst)", alone);
    for (kind, rounds) in Kind::ALL.into_iter().zip(rounds) {
        line(kind.name(), rounds);
    }
}

/// Prints the cost of a sort beside operators that hold nothing.
pub(crate) fn idle(sorts: &[[Vec<Sort>; 2]; 4]) {
    println!(
        "{:<19} {:>22} {:>22} {:>11} {:>13}",
        "pool", "none: s", "idle: s", "spilled MB", "with idle"
    );
    for (kind, sorts) in Kind::ALL.into_iter().zip(sorts) {
        let [none, idle] = sorts;
        let seconds = |sorts: &[Sort]| spread(sorts.iter().map(|sort| sort.seconds), 2);
        println!(
            "{:<19} {:>22} {:>22} {:>11} {:>13}",
            kind.name(),
            seconds(none),
            seconds(idle),
            spilled(none),
            spilled(idle)
        );
    }
}

/// Prints how many concurrent queries ended.
pub(crate) fn crowds(crowds: &[Crowd; 4]) {
    println!(
        "{:<19} {:>6} {:>8} {:>6} {:>16}",
        "pool", "done", "refused", "stuck", "spilled MB each"
    );
    for (kind, crowd) in Kind::ALL.into_iter().zip(crowds) {
        let Crowd { done, refused, stuck, spilled_bytes } = crowd;
        let each = *spilled_bytes as f64 / (*done).max(1) as f64 / f64::from(1 << 20);
        println!("{:<19} {done:>6} {refused:>8} {stuck:>6} {each:>16.0}", kind.name());
    }
}

/// Describes the machine in a few words.
pub(crate) fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split(": ").nth(1)).unwrap_or("an unnamed CPU");
    let model = model.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{count} × {model}, Linux {}, {}", kernel.trim(), submeter::backend())
}

fn line(name: &str, rounds: &[Round]) {
    let per_minute = |r: &Round| r.analyst.latencies.len() as f64 * 60.0 / r.seconds;
    let queries = |r: &Round| r.analyst.latencies.len().max(1) as f64;
    let spilled = |r: &Round| r.analyst.spilled_bytes as f64 / queries(r) / f64::from(1 << 20);
    let refused: usize = rounds.iter().map(|r| r.dashboard.refused + r.dashboard.stuck).sum();
    let asked: usize = rounds.iter().map(|round| round.dashboard.latencies.len()).sum();
    let analyst: usize = rounds.iter().map(|r| r.analyst.refused + r.analyst.stuck).sum();
    let peak = rounds.iter().map(|round| round.peak).max().unwrap_or(0);
    println!(
        "{:<19} {:>17} {:>15} {:>8} {:>18} {:>18} {:>9} {:>8.0}",
        name,
        spread(rounds.iter().map(per_minute), 0),
        spread(rounds.iter().map(spilled), 0),
        analyst,
        spread(rounds.iter().filter_map(|r| quantile_ms(&r.dashboard.latencies, 0.5)), 0),
        spread(rounds.iter().filter_map(|r| quantile_ms(&r.dashboard.latencies, 0.99)), 0),
        format!("{refused}/{}", refused + asked),
        peak as f64 / f64::from(1 << 20),
    );
}

fn spilled(sorts: &[Sort]) -> String {
    let bytes: Option<Vec<f64>> =
        sorts.iter().map(|sort| sort.spilled_bytes.map(|bytes| bytes as f64)).collect();
    match bytes {
        Some(bytes) => format!("{:.0}", median(bytes) / f64::from(1 << 20)),
        None => "not done".to_owned(),
    }
}

/// Writes the median, with the lowest and highest.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return "-".to_owned();
    }
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.digits$} ({lowest:.digits$}..{highest:.digits$})", median(values))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

fn quantile_ms(latencies: &[Duration], quantile: f64) -> Option<f64> {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    let last = sorted.len().checked_sub(1)?;
    let at = (last as f64 * quantile).round() as usize;
    Some(sorted[at].as_secs_f64() * 1e3)
}
