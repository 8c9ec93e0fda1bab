//! Formats numbers as perf does.

use submeter_http::wire::stat::{CountDoc, StateDoc};

/// One event's count, prepared for printing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    /// The value, scaled to the whole time, or perf's text for the reason there is none.
    pub(super) value: Result<Amount, &'static str>,
    /// The unit of the value; empty for a count.
    pub(super) unit: &'static str,
    /// The share of the time that the event was on a counter, in hundredths of a percent.
    pub(super) running: u64,
    pub(super) running_ns: u64,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Count(u64),
    /// A time, shown in milliseconds.
    Nanoseconds(u64),
}

impl Figure {
    pub(super) fn of(count: &CountDoc) -> Figure {
        let clock = is_clock(&count.event);
        let value = match &count.state {
            StateDoc::Counted { value } => {
                let scaled = scaled(*value, count.enabled_ns, count.running_ns);
                Ok(if clock { Amount::Nanoseconds(scaled) } else { Amount::Count(scaled) })
            }
            StateDoc::NotCounted | StateDoc::Error { .. } => Err("<not counted>"),
            StateDoc::NotSupported { .. } => Err("<not supported>"),
        };
        let running = scaled(10_000, count.running_ns, count.enabled_ns);
        let running = if count.enabled_ns == 0 { 0 } else { running };
        let unit = if clock { "msec" } else { "" };
        Figure { value, unit, running, running_ns: count.running_ns }
    }

    /// Formats the share of the time that the event was on a counter: `100.00`.
    pub(super) fn percent(&self) -> String {
        format!("{}.{:02}", self.running / 100, self.running % 100)
    }

    /// Returns how many CPUs a clock's time kept busy; `None` for other events.
    pub(super) fn cpus(&self, elapsed_ns: u64) -> Option<f64> {
        match self.value {
            Ok(Amount::Nanoseconds(ns)) if elapsed_ns > 0 => Some(ns as f64 / elapsed_ns as f64),
            _ => None,
        }
    }
}

impl Amount {
    /// Formats as `1,234` and `1,234.56`.
    pub(super) fn grouped(self) -> String {
        match self {
            Amount::Count(n) => submeter_terminal::count(n),
            Amount::Nanoseconds(ns) => {
                let hundredths = (ns + 5_000) / 10_000;
                format!("{}.{:02}", submeter_terminal::count(hundredths / 100), hundredths % 100)
            }
        }
    }

    /// Formats as `1234` and `1234.567891`.
    pub(super) fn plain(self) -> String {
        match self {
            Amount::Count(n) => n.to_string(),
            Amount::Nanoseconds(ns) => format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000),
        }
    }
}

/// Returns whether perf shows the event in milliseconds.
fn is_clock(event: &str) -> bool {
    let name = event.split(':').next().unwrap_or(event);
    matches!(name, "task-clock" | "cpu-clock")
}

/// Returns `value` × `by` ÷ `of`; the value itself if `of` is zero.
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    if of == 0 {
        return value;
    }
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

/// Returns what was counted between two totals, with the later state.
pub(super) fn between(before: &CountDoc, now: &CountDoc) -> CountDoc {
    let mut delta = now.clone();
    delta.enabled_ns = now.enabled_ns.saturating_sub(before.enabled_ns);
    delta.running_ns = now.running_ns.saturating_sub(before.running_ns);
    if let StateDoc::Counted { value } = &mut delta.state {
        if let StateDoc::Counted { value: earlier } = before.state {
            *value = value.saturating_sub(earlier);
        }
        if delta.running_ns == 0 && delta.enabled_ns > 0 {
            // The event waited for a counter the whole time.
            delta.state = StateDoc::NotCounted;
        }
    }
    delta
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(event: &str, state: StateDoc, enabled_ns: u64, running_ns: u64) -> CountDoc {
        CountDoc { group: None, event: event.to_owned(), state, enabled_ns, running_ns }
    }

    #[test]
    fn figures_are_scaled_and_the_missing_no_number() {
        let counted = |value| StateDoc::Counted { value };
        let half = Figure::of(&count("cycles", counted(500), 1000, 500));
        assert_eq!(half.value, Ok(Amount::Count(1000)));
        assert_eq!((half.percent().as_str(), half.unit), ("50.00", ""));
        let clock = Figure::of(&count("task-clock:D", counted(1_234_567_890), 7, 7));
        let Ok(amount) = clock.value else { panic!("counted") };
        assert_eq!((amount.grouped().as_str(), clock.unit), ("1,234.57", "msec"));
        assert_eq!(amount.plain(), "1234.567890");
        assert_eq!(clock.cpus(2_469_135_780), Some(0.5));
        let reason = String::new;
        for (state, text) in [
            (StateDoc::NotCounted, "<not counted>"),
            (StateDoc::NotSupported { reason: reason() }, "<not supported>"),
            (StateDoc::Error { reason: reason() }, "<not counted>"),
        ] {
            let figure = Figure::of(&count("cycles", state, 10, 0));
            assert_eq!((figure.value, figure.percent().as_str()), (Err(text), "0.00"));
        }
    }

    #[test]
    fn an_interval_is_the_difference_of_two_totals() {
        let counted = |value| StateDoc::Counted { value };
        let at = |value, enabled, running| count("cycles", counted(value), enabled, running);
        assert_eq!(between(&at(5, 10, 8), &at(9, 30, 20)), at(4, 20, 12));
        let first = count("cycles", StateDoc::NotCounted, 0, 0);
        assert_eq!(between(&first, &at(9, 30, 20)), at(9, 30, 20));
        // No time passed, so the count is 0. In the other case time passed without a counter, so
        // there is no count.
        assert_eq!(between(&at(5, 10, 8), &at(5, 10, 8)), at(0, 0, 0));
        assert_eq!(between(&at(5, 10, 8), &at(5, 20, 8)).state, StateDoc::NotCounted);
    }
}
