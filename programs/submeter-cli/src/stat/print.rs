//! Prints counts in the formats of `perf stat`: for people, as fields (`-x`), or as JSON.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use super::figure::{Figure, between};
use submeter_http::wire::stat::{CountDoc, StatDoc, StateDoc};
use submeter_terminal::{self as show, Destination, Failure, plain};

/// The flag that names the output file.
pub(super) const FLAG: &str = "-o";

/// The output format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    People,
    /// Fields with this separator.
    Fields(String),
    Json,
}

/// Prints each interval, including the last incomplete one, or the totals at the end.
pub(super) struct Printer {
    format: Format,
    /// Whether a terminal shows lines for people.
    is_terminal: bool,
    url: String,
    intervals: bool,
    last: Option<StatDoc>,
    /// The totals at the end of the last printed interval.
    shown: Option<StatDoc>,
    printed: u64,
    /// The totals of runs before this one.
    runs: Vec<StatDoc>,
    out: Destination,
    /// The output file, open since the first interval. Its previous content is kept until there is
    /// something to write.
    file: Option<File>,
    /// The reasons already printed: each is printed only once.
    told: Vec<String>,
}

impl Printer {
    pub(super) fn new(format: Format, url: String, intervals: bool, out: Destination) -> Printer {
        let is_shown = format == Format::People && out == Destination::Output;
        let is_terminal = is_shown && std::io::stdout().is_terminal();
        Printer {
            format,
            is_terminal,
            url,
            intervals,
            last: None,
            shown: None,
            printed: 0,
            runs: Vec::new(),
            out,
            file: None,
            told: Vec::new(),
        }
    }

    /// Stores the counts of a run when the next one begins.
    pub(super) fn end_run(&mut self) {
        self.runs.extend(self.last.take());
    }

    /// Adds the next totals, and prints them if each interval is printed. Returns false if the
    /// output was closed.
    pub(super) fn add(&mut self, totals: StatDoc) -> Result<bool, Failure> {
        self.explain(&totals);
        let text = if self.intervals && totals.is_due {
            self.interval(totals.clone())
        } else {
            String::new()
        };
        self.last = Some(totals);
        self.write(&text)
    }

    /// Prints; returns false if the reader closed the pipe, which is how `| head -1` ends a stream.
    fn write(&mut self, text: &str) -> Result<bool, Failure> {
        let path = match &self.out {
            Destination::Output => return show::stream(text).map_err(Failure::new),
            Destination::File(_) if text.is_empty() => return Ok(true),
            Destination::File(path) if self.intervals => path,
            whole => return whole.write(text, FLAG).map(|()| true).map_err(Failure::new),
        };
        let file = self.file.take().map_or_else(|| File::create(path), Ok);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            self.file = Some(file);
            Ok(true)
        });
        let path = path.display();
        written.map_err(|e| Failure::new(format_args!("cannot write {path}: {e} ({FLAG})")))
    }

    /// Formats the counts since the previous interval.
    fn interval(&mut self, totals: StatDoc) -> String {
        let mut text = String::new();
        if let (Format::People, 0) = (&self.format, self.printed) {
            text.push_str("#           time             counts unit events\n");
        }
        let before = self.shown.as_ref();
        let took_ns =
            totals.elapsed_ns.saturating_sub(before.map_or(0, |before| before.elapsed_ns));
        for (index, now) in totals.counts.iter().enumerate() {
            let before = before.and_then(|before| before.counts.get(index));
            let delta = before.map_or_else(|| now.clone(), |before| between(before, now));
            text.push_str(&self.line(Some(totals.elapsed_ns), &delta, took_ns));
        }
        self.printed += 1;
        self.shown = Some(totals);
        text
    }

    /// Prints the totals, or the counts after the last interval and the number of intervals. If
    /// there are several runs, an incomplete last one does not count.
    pub(super) fn end(&mut self, is_whole: bool) -> Result<(), Failure> {
        // A run that was cut short is not comparable to the others.
        let runs = &mut self.runs;
        let last = self.last.take().filter(|_| is_whole || runs.is_empty());
        let Some(totals) = last.or_else(|| runs.pop()) else {
            tell(&format!("nothing was counted: {} has not answered yet", self.url));
            return Ok(());
        };
        let seconds = totals.elapsed_ns as f64 / 1e9;
        if self.intervals {
            if self.shown.as_ref().is_none_or(|shown| shown.elapsed_ns < totals.elapsed_ns) {
                let text = self.interval(totals.clone());
                self.write(&text)?;
            }
            let (printed, threads) = (self.printed, totals.threads);
            tell(&format!("{printed} intervals, {seconds:.3} s, {threads} threads counted"));
            return Ok(());
        }
        let mut runs = std::mem::take(&mut self.runs);
        runs.push(totals);
        let (totals, varies) = repeated(&runs);
        let seconds = totals.elapsed_ns as f64 / 1e9;
        let lines = totals.counts.iter().zip(varies).map(|(count, varies)| {
            let line = self.line(None, count, totals.elapsed_ns);
            match (&self.format, varies) {
                (Format::People, Some(part)) => {
                    format!("{}  ( +- {:.2}% )\n", line.trim_end(), part * 100.0)
                }
                _ => line,
            }
        });
        let mut text: String = lines.collect();
        if self.format == Format::People {
            let of = if runs.len() > 1 { format!(", {} runs", runs.len()) } else { String::new() };
            text = format!(
                "\n Performance counter stats for {:?} ({} threads{of}):\n\n{text}\n{seconds:>17.9} seconds time elapsed\n\n",
                self.url, totals.threads
            );
        }
        self.write(&text).map(drop)
    }

    /// Prints once on standard error why numbers are missing, one line per reason.
    fn explain(&mut self, totals: &StatDoc) {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for CountDoc { event, state, .. } in &totals.counts {
            let (StateDoc::NotSupported { reason } | StateDoc::Error { reason }) = state else {
                continue;
            };
            match by_reason.iter_mut().find(|(known, _)| known == reason) {
                Some((_, events)) if events.contains(&event.as_str()) => {}
                Some((_, events)) => events.push(event),
                None => by_reason.push((reason, vec![event])),
            }
        }
        for (reason, events) in by_reason {
            let line = format!("{}: {reason}", events.join(", "));
            if !self.told.contains(&line) {
                tell(&line);
                self.told.push(line);
            }
        }
    }

    fn line(&self, at_ns: Option<u64>, count: &CountDoc, took_ns: u64) -> String {
        let figure = Figure::of(count);
        // JSON has the raw name.
        let group = count.group.as_deref().unwrap_or_default();
        let group = show::displayed(group, self.is_terminal);
        match &self.format {
            Format::People => people(at_ns, count, &group, &figure, took_ns),
            Format::Fields(separator) => fields(at_ns, count, group, &figure, took_ns, separator),
            Format::Json => json(at_ns, count, &figure, took_ns),
        }
    }
}

fn people(
    at_ns: Option<u64>,
    count: &CountDoc,
    group: &str,
    figure: &Figure,
    took_ns: u64,
) -> String {
    let mut line = at_ns.map_or_else(String::new, |ns| format!("{:>16.9} ", ns as f64 / 1e9));
    let value = figure.value.map_or_else(str::to_owned, |amount| amount.grouped());
    let blank = 20_usize.saturating_sub(show::width(group));
    // Writing to a `String` cannot fail.
    let _ = write!(
        line,
        "{value:>18} {:<4} {:<25} {group}{:blank$}",
        figure.unit,
        plain(&count.event),
        ""
    );
    if let Some(cpus) = figure.cpus(took_ns) {
        let _ = write!(line, " # {cpus:>8.3} CPUs utilized");
    }
    if figure.value.is_ok() && figure.running < 10_000 && count.enabled_ns > 0 {
        let _ = write!(line, "  ({}%)", figure.percent());
    }
    format!("{}\n", line.trim_end())
}

/// Formats perf's fields: the time, value, unit, event, group, run time, percentage, and a metric
/// with its unit.
fn fields(
    at_ns: Option<u64>,
    count: &CountDoc,
    group: String,
    figure: &Figure,
    took_ns: u64,
    separator: &str,
) -> String {
    let mut all = Vec::new();
    all.extend(at_ns.map(|ns| format!("{:.9}", ns as f64 / 1e9)));
    all.push(figure.value.map_or_else(str::to_owned, |amount| amount.plain()));
    all.push(figure.unit.to_owned());
    all.push(plain(&count.event).into_owned());
    all.push(group);
    all.push(figure.running_ns.to_string());
    all.push(figure.percent());
    let cpus = figure.cpus(took_ns);
    all.push(cpus.map_or_else(String::new, |cpus| format!("{cpus:.3}")));
    all.push(cpus.map_or_else(String::new, |_| "CPUs utilized".to_owned()));
    format!("{}\n", all.join(separator))
}

/// A line of JSON; the names are perf's.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<f64>,
    counter_value: String,
    unit: &'a str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    event_runtime: u64,
    pcnt_running: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_unit: Option<&'a str>,
}

fn json(at_ns: Option<u64>, count: &CountDoc, figure: &Figure, took_ns: u64) -> String {
    let cpus = figure.cpus(took_ns);
    let line = Line {
        interval: at_ns.map(|ns| ns as f64 / 1e9),
        counter_value: figure.value.map_or_else(str::to_owned, |amount| amount.plain()),
        unit: figure.unit,
        event: &count.event,
        cgroup: count.group.as_deref(),
        event_runtime: figure.running_ns,
        pcnt_running: figure.running as f64 / 100.0,
        metric_value: cpus.map(|cpus| format!("{cpus:.3}")),
        metric_unit: cpus.map(|_| "CPUs utilized"),
    };
    // Strings and finite numbers can always be written as JSON.
    serde_json::to_string(&line).map_or_else(|_| String::new(), |line| line + "\n")
}

/// Writes a line apart from the counts.
fn tell(line: &str) {
    show::tell(&format!("{}\n", plain(line)));
}

/// Returns the mean of several runs, and the relative error of each mean: the standard deviation
/// over the root of the number of runs, as perf computes it. The error is `None` if there is one
/// run, or if an event was not counted in each.
fn repeated(runs: &[StatDoc]) -> (StatDoc, Vec<Option<f64>>) {
    let n = runs.len() as u64;
    let mut mean = runs.last().expect("at least one run").clone();
    mean.elapsed_ns = runs.iter().map(|run| run.elapsed_ns).sum::<u64>() / n;
    let varies = mean.counts.iter_mut().enumerate().map(|(index, mean)| {
        let of_runs: Vec<&CountDoc> = runs.iter().filter_map(|run| run.counts.get(index)).collect();
        let values: Option<Vec<f64>> = of_runs
            .iter()
            .map(|count| match count.state {
                StateDoc::Counted { value } => Some(value as f64),
                _ => None,
            })
            .collect();
        let values = values.filter(|values| values.len() > 1)?;
        let average = values.iter().sum::<f64>() / values.len() as f64;
        let of = |part: fn(&CountDoc) -> u64| of_runs.iter().map(|&count| part(count)).sum::<u64>();
        mean.state = StateDoc::Counted { value: average.round() as u64 };
        (mean.enabled_ns, mean.running_ns) = (of(|c| c.enabled_ns) / n, of(|c| c.running_ns) / n);
        let squares: f64 = values.iter().map(|value| (value - average).powi(2)).sum();
        let error = (squares / (values.len() - 1) as f64 / values.len() as f64).sqrt();
        Some(if average > 0.0 { error / average } else { 0.0 })
    });
    let varies = varies.collect();
    (mean, varies)
}

#[cfg(test)]
#[path = "print_tests.rs"]
mod tests;
