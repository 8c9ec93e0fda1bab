//! What can be seen of a bench while it runs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress and an estimate on standard error, until it is dropped. Without a terminal it shows
/// nothing: a log wants results.
pub(crate) struct Progress {
    bar: ProgressBar,
    tables: usize,
    budget: Duration,
    /// Tables that were begun.
    begun: usize,
    table: &'static str,
    since: Instant,
    shown: Instant,
}

impl Progress {
    /// Makes one of `tables` tables, each of which has `budget`.
    pub(crate) fn new(tables: usize, budget: Duration) -> Progress {
        let bar = ProgressBar::new(millis(
            budget.saturating_mul(u32::try_from(tables).unwrap_or(u32::MAX)),
        ));
        // A template that does not parse would be a bug that shows as the default style.
        if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        let now = Instant::now();
        Progress { bar, tables, budget, begun: 0, table: "", since: now, shown: now }
    }

    /// Begins with the next table.
    pub(crate) fn begin(&mut self, table: &'static str) {
        self.begun += 1;
        self.table = table;
        self.since = Instant::now();
        self.show(0);
    }

    /// Says that a sample of `round` is about to be taken.
    ///
    /// Draws here, between samples, and seldom: a thread that draws at its own pace would draw while others measure.
    pub(crate) fn round(&mut self, round: usize) {
        const REFRESH: Duration = Duration::from_millis(200);
        if self.shown.elapsed() >= REFRESH {
            self.show(round);
        }
    }

    fn show(&mut self, round: usize) {
        self.shown = Instant::now();
        let elapsed = self.since.elapsed();
        let before = self.budget.saturating_mul(u32::try_from(self.begun - 1).unwrap_or(u32::MAX));
        self.bar.set_position(millis(before.saturating_add(elapsed.min(self.budget))));
        let left = estimate(self.budget, elapsed, self.tables - self.begun);
        let round = if round == 0 { "warming up".to_owned() } else { format!("round {round}") };
        self.bar.set_message(format!("{} · {round} · {left}", self.table));
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Says how long it takes from here, with `after` tables to follow.
fn estimate(budget: Duration, elapsed: Duration, after: usize) -> String {
    let after = budget.saturating_mul(u32::try_from(after).unwrap_or(u32::MAX));
    let left = budget.saturating_sub(elapsed).saturating_add(after);
    match left.as_secs_f64().ceil() {
        0.0 => "the least number of rounds takes longer than its budget".to_owned(),
        seconds => format!("about {seconds} s left"),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_what_is_left_of_all_budgets() {
        let seconds = Duration::from_secs;
        assert_eq!(estimate(seconds(5), seconds(2), 2), "about 13 s left");
        assert_eq!(estimate(seconds(5), seconds(9), 1), "about 5 s left");
        assert!(estimate(seconds(5), seconds(5), 0).contains("longer"));
        assert!(estimate(Duration::MAX, seconds(1), 3).starts_with("about"));
    }
}
