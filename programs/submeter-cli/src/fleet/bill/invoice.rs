//! The sums, and how far they reach.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use submeter::visible;
use submeter_terminal::{self as show, Failure};

/// What there is to bill.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Invoice {
    /// Lines by path, then by metric. Their sum is what all members counted.
    pub(super) lines: Vec<Line>,
    pub(super) runs: Vec<Run>,
    /// Epochs of which nothing was read, and which had successors.
    pub(super) unread: Vec<String>,
}

/// What one group counted of one metric, without the groups below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) path: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) total: i128,
}

/// One process of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Run {
    pub(super) member: String,
    pub(super) epoch: String,
    pub(super) started_ms: Option<u64>,
    /// The time of the last reading; later counts are not in the lines.
    pub(super) read_ms: u64,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It may be running, and be read again.
    Open,
    /// It has ended, and what it counted after its last reading is unknown.
    Unknown,
    /// It has ended, and everything it counted was read.
    Complete,
}

#[derive(Serialize)]
struct InvoiceDoc<'a> {
    format: u32,
    #[serde(flatten)]
    invoice: &'a Invoice,
}

/// Writes an invoice.
pub(super) fn text(invoice: &Invoice, as_json: bool) -> Result<String, Failure> {
    if as_json {
        let json = serde_json::to_string_pretty(&InvoiceDoc { format: 1, invoice });
        let cannot = |error| Failure::new(format_args!("cannot write JSON: {error}"));
        return Ok(json.map_err(cannot)? + "\n");
    }
    // Clients choose names, and names that look the same would appear as two lines of one invoice.
    let rows = invoice.lines.iter().map(|line| {
        let name = format!("{} of {}", line.metric, visible(&line.path));
        vec![name, line.total.to_string(), line.unit.clone()]
    });
    let mut text = show::table(&["", "total", "unit"], &rows.collect::<Vec<_>>(), false);
    let rows = invoice.runs.iter().map(|run| {
        let counts = match run.state {
            State::Open => "not read yet",
            State::Unknown => "unknown",
            State::Complete => "nothing",
        };
        let started = run.started_ms.map_or_else(|| "–".to_owned(), utc);
        let name = format!("{} {}", visible(&run.member), run.epoch);
        vec![name, started, utc(run.read_ms), counts.to_owned()]
    });
    let heading = ["server", "began", "read until", "counted since"];
    text.push('\n');
    text.push_str(&show::table(&heading, &rows.collect::<Vec<_>>(), false));
    for epoch in &invoice.unread {
        let epoch = visible(epoch);
        text.push_str(&format!("{epoch}: a run that was never read; what it counted is unknown\n"));
    }
    Ok(text)
}

/// Writes a time; nothing where the server's clock was beyond all calendars.
fn utc(ms: u64) -> String {
    const YEAR_9999_MS: u64 = 253_370_764_800_000;
    if ms >= YEAR_9999_MS {
        return "–".to_owned();
    }
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable_whatever_a_server_says() {
        assert_eq!(utc(1_795_594_500_999), "Wed, 25 Nov 2026 08:15:00 GMT");
        for ms in [253_370_764_800_000, u64::MAX] {
            assert_eq!(utc(ms), "–");
        }
        assert_eq!(utc(253_370_764_799_999), "Thu, 31 Dec 9998 23:59:59 GMT");
    }
}
