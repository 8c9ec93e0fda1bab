//! What can be seen of a load while it runs.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// Counts that every connection adds to.
#[derive(Debug, Default)]
pub struct Progress {
    answered: AtomicU64,
    /// Of all answers together, from sending to the answer.
    took_ns: AtomicU64,
    corrupt: AtomicU64,
}

impl Progress {
    /// Adds answered requests, and how long all of them took together.
    pub fn answered(&self, n: u64, took: Duration) {
        // Relaxed: a statistic for the progress line; the results are counted elsewhere.
        self.answered.fetch_add(n, Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a statistic, as above.
        self.took_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Returns how many requests were answered so far, and how long all of them took together.
    pub fn times(&self) -> (u64, Duration) {
        // Relaxed: statistics; who reads them between two answers is off by one.
        let answered = self.answered.load(Ordering::Relaxed);
        // Relaxed: as above.
        let took_ns = self.took_ns.load(Ordering::Relaxed);
        (answered, Duration::from_nanos(took_ns))
    }

    /// Adds a corrupt value.
    pub fn corrupt(&self) {
        // Relaxed: a statistic, as above.
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        // Relaxed: statistics, as above; they need not agree with each other.
        (self.answered.load(Ordering::Relaxed), self.corrupt.load(Ordering::Relaxed))
    }
}

/// Shows progress on standard error until the future is dropped. Without a terminal it shows
/// nothing: a log wants results.
pub async fn show(progress: &Progress, seconds: Option<Duration>, requests: Option<u64>) {
    const REFRESH: Duration = Duration::from_millis(100);
    let bar = Bar::new(seconds, requests);
    let started = Instant::now();
    // The rate of the last second, as the mean hides what happens now.
    let mut second_ago = std::collections::VecDeque::from([(started, 0)]);
    loop {
        tokio::time::sleep(REFRESH).await;
        let now = Instant::now();
        let (answered, corrupt) = progress.read();
        second_ago.push_back((now, answered));
        if second_ago.len() > 11 {
            second_ago.pop_front();
        }
        let (then, before) = second_ago[0];
        let rate = (answered - before) as f64 / now.duration_since(then).as_secs_f64().max(1e-3);
        let position = if requests.is_some() {
            answered
        } else {
            u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
        };
        bar.0.set_position(position);
        let bad = if corrupt > 0 { format!(" · {corrupt} CORRUPT") } else { String::new() };
        bar.0.set_message(format!(
            "{} requests · {}/s{bad}",
            HumanCount(answered),
            HumanCount(rate as u64)
        ));
        bar.rewind();
    }
}

struct Bar(ProgressBar);

impl Bar {
    fn new(seconds: Option<Duration>, requests: Option<u64>) -> Bar {
        let (length, template) = match (requests, seconds) {
            (Some(n), _) => (Some(n), "{bar:30.cyan/dim} {percent:>3}% · {msg}"),
            (None, Some(s)) => {
                let ms = u64::try_from(s.as_millis()).unwrap_or(u64::MAX);
                (Some(ms), "{bar:30.cyan/dim} {elapsed:>3} · {msg}")
            }
            (None, None) => (None, "{spinner:.cyan} {elapsed:>3} · {msg}"),
        };
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        // A template that does not parse would be a bug that shows as the default style.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Bar(bar)
    }

    /// Puts the cursor at the line's start. A drawn line fills the terminal's width, and the `^C`
    /// that a terminal echoes behind it would go to the next line, which alone would then be
    /// cleared.
    fn rewind(&self) {
        if !self.0.is_hidden() {
            // A terminal that has gone away will have no stale line either.
            let _ = std::io::stderr().write_all(b"\r");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
