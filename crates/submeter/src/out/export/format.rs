//! The two text formats, and which of them a client asks for.

/// A text format that Prometheus and others read.
///
/// # Examples
/// ```
/// use submeter::export::Format;
///
/// let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
/// assert_eq!(Format::accepted(accept), Format::OpenMetrics);
/// assert_eq!(Format::accepted("*/*"), Format::Text);
/// assert!(Format::Text.content_type().starts_with("text/plain"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// OpenMetrics 1.0: with units and, if asked for, the time at which each series began.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every reader understands.
    Text,
}

impl Format {
    /// Chooses from the `Accept` header of a request: OpenMetrics if the client names it and
    /// prefers nothing to it, the text format otherwise. `""` stands for no header.
    ///
    /// A client that names neither, such as a person with a browser, is not refused: it gets the
    /// text format.
    #[must_use]
    pub fn accepted(accept: &str) -> Format {
        let quality = |of: &str| {
            let ranges = accept.split(',').filter_map(|range| quality_of(range, of));
            ranges.reduce(f64::max)
        };
        let openmetrics = quality("application/openmetrics-text").unwrap_or(0.0);
        // The most specific range counts: RFC 9110, 12.5.1.
        let text = ["text/plain", "text/*", "*/*"].into_iter().find_map(quality).unwrap_or(0.0);
        if openmetrics > 0.0 && openmetrics >= text { Format::OpenMetrics } else { Format::Text }
    }

    /// Returns the value of the `Content-Type` header.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns the quality that one range of the client's header gives `kind`, or `None` if the range
/// is for another kind, or for a version that is not written.
fn quality_of(range: &str, kind: &str) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let mut quality = 1.0;
    for part in parts {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        match &*name.trim().to_ascii_lowercase() {
            "q" => quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
            "version" if !matches!(value, "1.0.0" | "0.0.1" | "0.0.4") => return None,
            _ => {}
        }
    }
    Some(quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each version of Prometheus, old and new, gets what its real header asks for.
    #[test]
    fn each_prometheus_gets_what_it_asks_for() {
        let two = "application/openmetrics-text;version=1.0.0,\
                   application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let three = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     application/openmetrics-text;version=0.0.1;q=0.5,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                     text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
        for (accept, format) in [
            (two, Format::OpenMetrics),
            (three, Format::OpenMetrics),
            (old, Format::Text),
            ("", Format::Text),
            ("text/html,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.7", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;version=9.9.9", Format::Text),
            ("Application/OpenMetrics-Text; q=1", Format::OpenMetrics),
            ("application/openmetrics-text;q=nonsense", Format::Text),
            ("application/openmetrics-text;q=2", Format::Text),
            ("application/openmetrics-text;q=-1", Format::Text),
            ("application/openmetrics-text;q=NaN", Format::Text),
            ("application/openmetrics-text;Q=0.3, text/plain;Q=0.7", Format::Text),
            ("application/openmetrics-text;VERSION=9.9.9", Format::Text),
            ("application/openmetrics-text;q=0.5, */*", Format::Text),
            ("application/openmetrics-text;q=0.5, text/*;q=0.4, */*", Format::OpenMetrics),
            ("application/openmetrics-text, */*", Format::OpenMetrics),
            ("application/openmetrics-text;q=0, */*;q=0", Format::Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0, */*", Format::OpenMetrics),
            ("application/*", Format::Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
