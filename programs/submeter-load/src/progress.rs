//! The progress display of a running load.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use submeter_terminal::count;

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
        bar.draw(&Moment { elapsed: started.elapsed(), answered, rate: rate as u64, corrupt });
    }
}

/// The content of the display.
struct Moment {
    elapsed: Duration,
    answered: u64,
    rate: u64,
    corrupt: u64,
}

/// A line on standard error that is redrawn repeatedly, and cleared at the end.
struct Bar {
    seconds: Option<Duration>,
    requests: Option<u64>,
    is_shown: bool,
}

/// Width of the bar, in characters.
const WIDTH: usize = 30;

impl Bar {
    fn new(seconds: Option<Duration>, requests: Option<u64>) -> Bar {
        Bar { seconds, requests, is_shown: std::io::stderr().is_terminal() }
    }

    /// Leaves the cursor at the start of the line, so that a `^C` echoed there is cleared with it.
    /// Cuts what does not fit into the terminal: a line that continued on the next one would not be
    /// cleared.
    fn draw(&self, now: &Moment) {
        if self.is_shown {
            let line = format!("\r\x1b[K\x1b[?7l{}\x1b[?7h\r", self.line(now));
            // A terminal that is gone has no stale line either.
            let _ = anstream::stderr().write_all(line.as_bytes());
        }
    }

    fn line(&self, now: &Moment) -> String {
        let seconds = now.elapsed.as_secs();
        let elapsed =
            if seconds < 120 { format!("{seconds}s") } else { format!("{}m", seconds / 60) };
        let of = |done: f64, all: f64| (done / all.max(1e-9)).clamp(0.0, 1.0);
        let head = match (self.requests, self.seconds) {
            (Some(all), _) => {
                let done = of(now.answered as f64, all as f64);
                format!("{} {:>3.0}%", bar(done), (done * 100.0).floor())
            }
            (None, Some(all)) => {
                format!("{} {elapsed:>3}", bar(of(now.elapsed.as_secs_f64(), all.as_secs_f64())))
            }
            (None, None) => format!("{elapsed:>3}"),
        };
        let bad =
            if now.corrupt > 0 { format!(" · {} CORRUPT", now.corrupt) } else { String::new() };
        format!("{head} · {} requests · {}/s{bad}", count(now.answered), count(now.rate))
    }
}

/// Draws a fraction of 1.
fn bar(done: f64) -> String {
    let cyan = AnsiColor::Cyan.on_default();
    let full = (done * WIDTH as f64) as usize;
    let head = if full < WIDTH { "╸" } else { "" };
    let rest = "─".repeat(WIDTH.saturating_sub(full + 1));
    let dim = Style::new().dimmed();
    format!("{cyan}{}{head}{cyan:#}{dim}{rest}{dim:#}", "━".repeat(full))
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_shown {
            // The same as above.
            let _ = anstream::stderr().write_all(b"\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: Option<u64>, requests: Option<u64>, now: &Moment) -> String {
        let bar = Bar { seconds: seconds.map(Duration::from_secs), requests, is_shown: true };
        anstream::adapter::strip_str(&bar.line(now)).to_string()
    }

    #[test]
    fn the_line_says_how_much_is_done_and_how_fast() {
        let now = |elapsed, answered, corrupt| Moment {
            elapsed: Duration::from_secs(elapsed),
            answered,
            rate: 1234,
            corrupt,
        };
        let half = "━".repeat(15) + "╸" + &"─".repeat(14);
        let said = " · 500 requests · 1,234/s";
        assert_eq!(line(None, Some(1000), &now(3, 500, 0)), format!("{half}  50%{said}"));
        assert_eq!(line(Some(6), None, &now(3, 500, 0)), format!("{half}  3s{said}"));
        assert_eq!(line(None, None, &now(180, 500, 2)), format!(" 3m{said} · 2 CORRUPT"));
        let (none, all) = ("╸".to_owned() + &"─".repeat(29), "━".repeat(30));
        assert!(line(Some(6), None, &now(0, 0, 0)).starts_with(&none));
        assert!(line(Some(6), None, &now(7, 0, 0)).starts_with(&(all + "  7s")));
    }
}
