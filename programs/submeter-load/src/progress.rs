//! The progress display of a running load.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// Counts that every connection adds to.
#[derive(Debug, Default)]
pub struct Progress {
    answered: AtomicU64,
    /// The sum of all response times.
    took_ns: AtomicU64,
    corrupt: AtomicU64,
}

impl Progress {
    /// Adds answered requests and their total response time.
    pub fn answered(&self, n: u64, took: Duration) {
        // Relaxed: a statistic for the progress line; the results are counted elsewhere.
        self.answered.fetch_add(n, Ordering::Relaxed);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a statistic, as above.
        self.took_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Returns the number of answered requests and their total response time.
    pub fn times(&self) -> (u64, Duration) {
        // Relaxed: statistics; a read between the two additions is off by one answer.
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
/// nothing, because a log needs only results.
pub async fn show(progress: &Progress, seconds: Option<Duration>, requests: Option<u64>) {
    const REFRESH: Duration = Duration::from_millis(100);
    let bar = Bar::new(seconds, requests);
    let started = Instant::now();
    // The rate of the last second, because the mean over the run would hide changes.
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
        // An invalid template would be a bug, which the default style would reveal.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Bar(bar)
    }

    /// Puts the cursor at the start of the line. A drawn line fills the terminal's width; a `^C`
    /// echoed after it would go to the next line, and only that one would be cleared.
    fn rewind(&self) {
        if !self.0.is_hidden() {
            // A terminal that is gone has no stale line either.
            let _ = std::io::stderr().write_all(b"\r");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
