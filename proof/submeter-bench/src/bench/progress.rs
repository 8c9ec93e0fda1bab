//! The progress display of a running bench.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar with an estimate on standard error, shown until it is dropped. Without a terminal
/// it shows nothing, because a log needs only results.
pub(crate) struct Progress {
    bar: ProgressBar,
    table: &'static str,
    /// The table's estimated time.
    takes: Duration,
    since: Instant,
    shown: Instant,
}

impl Progress {
    /// Starts the display for a table with an estimated time.
    pub(crate) fn new(table: &'static str, takes: Duration) -> Progress {
        let bar = ProgressBar::new(millis(takes));
        // An invalid template would be a bug, which the default style would reveal.
        if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        let now = Instant::now();
        let mut progress = Progress { bar, table, takes, since: now, shown: now };
        progress.show(0);
        progress
    }

    /// Notes that a sample of `round` is about to be taken.
    ///
    /// Draws only here, between samples, and rarely: a separate drawing thread would disturb
    /// measurements.
    pub(crate) fn round(&mut self, round: usize) {
        const REFRESH: Duration = Duration::from_millis(200);
        if self.shown.elapsed() >= REFRESH {
            self.show(round);
        }
    }

    fn show(&mut self, round: usize) {
        self.shown = Instant::now();
        let elapsed = self.since.elapsed();
        self.bar.set_position(millis(elapsed.min(self.takes)));
        let left = estimate(self.takes, elapsed);
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

/// Describes the time that is left of `all` after `elapsed`.
fn estimate(all: Duration, elapsed: Duration) -> String {
    match all.saturating_sub(elapsed).as_secs_f64().ceil() {
        0.0 => "the minimum of rounds takes longer than estimated".to_owned(),
        seconds if seconds > 120.0 => format!("about {:.0} min left", seconds / 60.0),
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
    fn the_estimate_is_what_is_left() {
        let seconds = Duration::from_secs;
        assert_eq!(estimate(seconds(15), seconds(2)), "about 13 s left");
        assert_eq!(estimate(seconds(660), seconds(0)), "about 11 min left");
        assert!(estimate(seconds(5), seconds(5)).contains("longer"));
        assert!(estimate(Duration::MAX, seconds(3)).starts_with("about"));
    }
}
