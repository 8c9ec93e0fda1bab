//! The text of an exposition, in either format.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use super::format::Format;
use super::names::{Family, NamePart};
use super::quota_part::QuotaPart;
use super::series::{Column, Entry, Series};
use crate::metric::schema::Schema;
use crate::metric::unit::UnitKind;
use crate::tree::tree_stats::Moment;

/// The format of an exposition.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) format: Format,
    /// Whether to write when each series began to count.
    pub(super) created: bool,
    /// The number of scrapes that must have seen a new group before its counts are its own; `None`
    /// if they always are.
    pub(super) scrapers: Option<u32>,
}

/// The series of one path, with its label ready to be written.
pub(super) struct Labelled<'a> {
    pub(super) path: &'a str,
    label: String,
    other: String,
    entry: &'a Entry,
}

impl<'a> Labelled<'a> {
    pub(super) fn new(path: &'a str, entry: &'a Entry) -> Labelled<'a> {
        let label = escaped(path);
        // No name is empty, so no path has two slashes in a row; a pattern that finds everything
        // below a group, `/acme/.*`, finds this too.
        let other = format!("{}//other", label.trim_end_matches('/'));
        Labelled { path, label, other, entry }
    }
}

/// Writes an info metric: labels, and a value of 1.
pub(super) fn info(
    style: Style,
    name: &str,
    help: &str,
    labels: &[(String, String)],
    out: &mut String,
) -> fmt::Result {
    match style.format {
        Format::OpenMetrics => writeln!(out, "# TYPE {name} info\n# HELP {name} {help}")?,
        Format::Text => writeln!(out, "# HELP {name}_info {help}\n# TYPE {name}_info gauge")?,
    }
    write!(out, "{name}_info{{")?;
    for (n, (label, value)) in labels.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(out, "{comma}{label}=\"{}\"", escaped(value))?;
    }
    out.write_str("} 1\n")
}

/// Writes the tree's epoch, when it began to count, and the number of this moment.
pub(super) fn tree(
    style: Style,
    name: &str,
    began: SystemTime,
    moment: Moment,
    exact: bool,
    out: &mut String,
) -> fmt::Result {
    let epoch = [("epoch".to_owned(), format!("{:016x}", moment.epoch))];
    let help = if exact {
        "The tree that was scraped; a new epoch starts from 0. A series starts with everything \
         that its group has counted"
    } else {
        "The tree that was scraped; a new epoch starts from 0. The series of a new group starts \
         at 0: what it counts until all servers have seen it is in the other above it"
    };
    info(style, name, help, &epoch, out)?;
    let [_, _, start, sequence] = tree_names(name);
    let help = "Time at which the tree began to count, since 1970";
    gauge(style, &start, Some("seconds"), help, &Seconds(began), out)?;
    let help = "Order of scrapes within an epoch: a later one has a larger number";
    gauge(style, &sequence, None, help, &moment.sequence, out)
}

/// Returns the names that [`tree`] writes.
pub(super) fn tree_names(name: &str) -> [String; 4] {
    let suffixed = |suffix: &str| format!("{name}{suffix}");
    ["", "_info", "_start_time_seconds", "_sequence"].map(suffixed)
}

fn gauge(
    style: Style,
    name: &str,
    unit: Option<&str>,
    help: &str,
    value: &dyn fmt::Display,
    out: &mut String,
) -> fmt::Result {
    match style.format {
        Format::OpenMetrics => {
            let unit = unit.map(|unit| format!("# UNIT {name} {unit}\n")).unwrap_or_default();
            writeln!(out, "# TYPE {name} gauge\n{unit}# HELP {name} {help}")?;
        }
        Format::Text => writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge")?,
    }
    writeln!(out, "{name} {value}")
}

/// A time as seconds since 1970, to the millisecond.
struct Seconds(SystemTime);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        write!(f, "{}.{:03}", since.as_secs(), since.subsec_millis())
    }
}

/// Writes for how long a barrier has been waiting for a CPU, and for which one, if any is.
pub(super) fn barrier(
    style: Style,
    name: &str,
    waiting: Option<(usize, Duration)>,
    out: &mut String,
) -> fmt::Result {
    let help = "How long a barrier has been waiting for a CPU; seconds mean that a real-time \
                thread or another cpuset occupies it";
    let ns = waiting.map_or(0, |(_, waited)| waited.as_nanos() as u64);
    gauge(style, name, Some("seconds"), help, &Number::new(ns, UnitKind::Nanoseconds), out)
}

/// Writes the CPU time that the process used, in any group or none.
pub(super) fn process_cpu(style: Style, name: &str, ns: u64, out: &mut String) -> fmt::Result {
    let help = "CPU time of the process, with the part that was charged to no group";
    match style.format {
        Format::OpenMetrics => {
            writeln!(out, "# TYPE {name} counter\n# UNIT {name} seconds\n# HELP {name} {help}")?;
        }
        Format::Text => writeln!(out, "# HELP {name}_total {help}\n# TYPE {name}_total counter")?,
    }
    writeln!(out, "{name}_total {}", Number::new(ns, UnitKind::Nanoseconds))
}

/// Writes one family for all groups.
pub(super) fn family(
    style: Style,
    schema: &Schema,
    family: &Family<'_>,
    columns: &[Column],
    groups: &[Labelled<'_>],
    out: &mut String,
) -> fmt::Result {
    let source = Source::of(schema, family);
    head(style, family, source, out)?;
    let writer = Writer { style, family, unit: family.part.unit(family.metric) };
    for group in groups {
        let entry = group.entry;
        if family.part.is_level() && entry.has_ended() {
            continue;
        }
        match source {
            Source::Usage(slot) => writer.quota(&group.label, entry, slot, out)?,
            Source::Unsummed(at, which) => {
                if let Some((numbers, created)) = entry.unsummed[at].shown() {
                    let n = numbers[which].cast_signed();
                    writer.sample(&group.label, &[n], created, out)?;
                }
            }
            Source::Word(word) if family.subtree => {
                let created = entry.shown.created.max(columns[word].created);
                let words = entry.subtree.as_deref().map(|words| &words[word..]);
                words.map_or(Ok(()), |words| writer.sample(&group.label, words, created, out))?;
            }
            Source::Word(word) => {
                let mut write = |label: &str, series: &Series| {
                    let created = series.created.max(columns[word].created);
                    writer.sample(label, &series.words[word..], created, out)
                };
                write(&group.label, &entry.shown)?;
                entry.other.as_ref().map_or(Ok(()), |other| write(&group.other, other))?;
            }
        }
    }
    Ok(())
}

/// Where an entry has a family's numbers.
#[derive(Clone, Copy)]
enum Source {
    /// In the series, from this word on.
    Word(usize),
    /// One of the two numbers at an index of `unsummed`.
    Unsummed(usize, usize),
    /// The usage of the quota in this slot.
    Usage(usize),
}

impl Source {
    fn of(schema: &Schema, family: &Family<'_>) -> Source {
        let key = family.metric.key;
        let (slot, quotas) = (usize::from(key.slot), schema.quotas());
        match family.part {
            NamePart::Quota(QuotaPart::Refused) => Source::Word(schema.refused_word(key)),
            NamePart::Quota(QuotaPart::Overdrafts) => Source::Word(schema.overdrafts_word(key)),
            NamePart::Quota(QuotaPart::Paused) => Source::Word(schema.paused_word(key)),
            NamePart::Quota(QuotaPart::SomeStalled) => Source::Unsummed(slot, 0),
            NamePart::Quota(QuotaPart::FullStalled) => Source::Unsummed(slot, 1),
            NamePart::Quota(QuotaPart::Reclaimed) => Source::Unsummed(quotas + slot, 0),
            NamePart::Quota(QuotaPart::ReclaimedLow) => Source::Unsummed(quotas + slot, 1),
            NamePart::Current | NamePart::Used | NamePart::Quota(_) => Source::Usage(slot),
            NamePart::Counter | NamePart::Gauge | NamePart::Histogram => {
                Source::Word(schema.word(key).expect("it is the schema's own"))
            }
        }
    }
}

fn head(style: Style, family: &Family<'_>, source: Source, out: &mut String) -> fmt::Result {
    let name = &family.name;
    let kind = match family.part {
        NamePart::Histogram => "histogram",
        part if part.is_level() => "gauge",
        _ => "counter",
    };
    let what = match family.part {
        NamePart::Counter | NamePart::Gauge | NamePart::Histogram => "",
        NamePart::Current => "current usage",
        NamePart::Quota(part) => part.help(),
        NamePart::Used => "current usage with descendants, which the limit bounds",
    };
    let comma = if what.is_empty() { "" } else { ", " };
    let scope = match (source, style.scrapers) {
        _ if family.subtree => " (with descendants)".to_owned(),
        // Each family says so itself: few readers of one metric's help also read the tree's.
        (Source::Word(_), Some(scrapers)) if kind != "gauge" => {
            let seen = match scrapers {
                1 => "a scrape has".to_owned(),
                _ => format!("{scrapers} scrapes have"),
            };
            format!(" (what a new group counts until {seen} seen it is in the //other above it)")
        }
        _ => String::new(),
    };
    let help = family.metric.help();
    if style.format == Format::Text {
        // In the text format, a counter's name is that of its samples.
        let total = if kind == "counter" { "_total" } else { "" };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(out, "# HELP {name}{total} {help}{comma}{what}{scope}")?;
        return writeln!(out, "# TYPE {name}{total} {kind}");
    }
    writeln!(out, "# TYPE {name} {kind}")?;
    let unit = family.part.unit(family.metric).base_name();
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    writeln!(out, "# HELP {name} {}{comma}{what}{scope}", escaped(help))
}

/// Writes the samples of one family.
struct Writer<'a> {
    style: Style,
    family: &'a Family<'a>,
    unit: UnitKind,
}

impl Writer<'_> {
    fn sample(
        &self,
        label: &str,
        words: &[i64],
        created: SystemTime,
        out: &mut String,
    ) -> fmt::Result {
        let (name, unit) = (&self.family.name, self.unit);
        match self.family.part {
            NamePart::Gauge => {
                let n = Number { negative: words[0] < 0, magnitude: words[0].unsigned_abs(), unit };
                return writeln!(out, "{name}{{group=\"{label}\"}} {n}");
            }
            NamePart::Histogram => self.histogram(label, words, out)?,
            _ => {
                let n = Number::new(words[0].cast_unsigned(), unit);
                writeln!(out, "{name}_total{{group=\"{label}\"}} {n}")?;
            }
        }
        if self.style.created && self.style.format == Format::OpenMetrics {
            writeln!(out, "{name}_created{{group=\"{label}\"}} {}", Seconds(created))?;
        }
        Ok(())
    }

    /// Writes one bucket for each power of two: all quarters would make a scrape much larger, for a
    /// precision that a rate over a scrape interval seldom has.
    fn histogram(&self, label: &str, words: &[i64], out: &mut String) -> fmt::Result {
        let (name, unit) = (&self.family.name, self.unit);
        let buckets = self.family.metric.buckets().expect("a histogram has buckets");
        let mut cumulative = 0u64;
        let counts = &words[1..=buckets.len()];
        for (index, count) in counts.iter().enumerate() {
            cumulative = cumulative.saturating_add(count.cast_unsigned());
            match buckets.upper(index) {
                Some(upper) if upper.is_power_of_two() => {
                    let le = Bound { upper, unit };
                    writeln!(out, "{name}_bucket{{group=\"{label}\",le=\"{le}\"}} {cumulative}")?;
                }
                Some(_) => {}
                None => {
                    writeln!(out, "{name}_bucket{{group=\"{label}\",le=\"+Inf\"}} {cumulative}")?;
                }
            }
        }
        let sum = Number::new(words[0].cast_unsigned(), unit);
        writeln!(out, "{name}_sum{{group=\"{label}\"}} {sum}")?;
        writeln!(out, "{name}_count{{group=\"{label}\"}} {cumulative}")
    }

    fn quota(&self, label: &str, entry: &Entry, slot: usize, out: &mut String) -> fmt::Result {
        let (name, usage) = (&self.family.name, entry.usage[slot]);
        let value = match self.family.part {
            NamePart::Quota(QuotaPart::Limit) => usage.limit,
            NamePart::Quota(_) => Some(usage.peak),
            NamePart::Used if self.family.subtree || usage.limit.is_some() => Some(usage.current),
            NamePart::Used => None,
            _ => Some(entry.used[slot]),
        };
        let write = |n| writeln!(out, "{name}{{group=\"{label}\"}} {}", Number::new(n, self.unit));
        value.map_or(Ok(()), write)
    }
}

/// A value in base units as an exact decimal.
struct Number {
    negative: bool,
    magnitude: u64,
    unit: UnitKind,
}

impl Number {
    fn new(magnitude: u64, unit: UnitKind) -> Number {
        Number { negative: false, magnitude, unit }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_char('-')?;
        }
        let per_base = self.unit.per_base();
        write!(f, "{}", self.magnitude / per_base)?;
        let fraction = self.magnitude % per_base;
        if fraction == 0 {
            return Ok(());
        }
        let digits = per_base.ilog10() as usize;
        let fraction = format!("{fraction:0digits$}");
        write!(f, ".{}", fraction.trim_end_matches('0'))
    }
}

/// A bucket's bound, which OpenMetrics requires to have a decimal point even if it is whole.
struct Bound {
    upper: u64,
    unit: UnitKind,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Number::new(self.upper, self.unit).to_string();
        f.write_str(&text)?;
        if text.contains('.') { Ok(()) } else { f.write_str(".0") }
    }
}

/// Escapes a label's value or a help text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_that_waits_is_told_of_in_seconds() {
        let style = Style { format: Format::Text, created: false, scrapers: None };
        for (waiting, value) in [(None, "0"), (Some((3, Duration::from_millis(6_250))), "6.25")] {
            let mut out = String::new();
            barrier(style, "app_barrier_wait_seconds", waiting, &mut out).expect("a string");
            let last = out.lines().last().expect("some");
            assert_eq!(last, format!("app_barrier_wait_seconds {value}"));
        }
    }
}
