//! What can be seen of a bench while it runs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress and an estimate on standard error, until it is dropped. Without a terminal it shows
/// nothing: a log wants results.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// How long each table takes.
    tables: Vec<Duration>,
    /// Tables that were begun.
    begun: usize,
    table: &'static str,
    since: Instant,
    shown: Instant,
}

impl Progress {
    /// Makes one of tables that take so long.
    pub(crate) fn new(tables: Vec<Duration>) -> Progress {
        let bar = ProgressBar::new(millis(sum(&tables)));
        // A template that does not parse would be a bug that shows as the default style.
        if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        let now = Instant::now();
        Progress { bar, tables, begun: 0, table: "", since: now, shown: now }
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
        let place = self.begun - 1;
        let before = sum(&self.tables[..place]).saturating_add(elapsed.min(self.tables[place]));
        self.bar.set_position(millis(before));
        let left = estimate(&self.tables[place..], elapsed);
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

/// Says how long it takes from here, `elapsed` after the first of `tables` was begun.
fn estimate(tables: &[Duration], elapsed: Duration) -> String {
    let (first, after) = tables.split_first().map_or((Duration::ZERO, tables), |(f, a)| (*f, a));
    let left = first.saturating_sub(elapsed).saturating_add(sum(after));
    match left.as_secs_f64().ceil() {
        0.0 => "the least number of rounds takes longer than was thought".to_owned(),
        seconds if seconds > 120.0 => format!("about {:.0} min left", seconds / 60.0),
        seconds => format!("about {seconds} s left"),
    }
}

fn sum(durations: &[Duration]) -> Duration {
    durations.iter().fold(Duration::ZERO, |sum, duration| sum.saturating_add(*duration))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_what_is_left_of_all_tables() {
        let seconds = Duration::from_secs;
        assert_eq!(estimate(&[seconds(5), seconds(2), seconds(8)], seconds(2)), "about 13 s left");
        assert_eq!(estimate(&[seconds(5), seconds(5)], seconds(9)), "about 5 s left");
        assert_eq!(estimate(&[seconds(60), seconds(600)], seconds(0)), "about 11 min left");
        assert!(estimate(&[seconds(5)], seconds(5)).contains("longer"));
        assert!(estimate(&[Duration::MAX, seconds(3)], seconds(1)).starts_with("about"));
    }
}
