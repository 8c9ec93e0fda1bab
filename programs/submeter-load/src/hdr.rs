//! Latencies in the text format of HdrHistogram, which its plotter reads.

use hdrhistogram::Histogram;

/// The number of lines for each half of the remainder, as in HdrHistogram's own tools.
const TICKS: u32 = 5;

/// Number of sub-buckets for three digits.
const SUB_BUCKETS: u32 = 2048;

/// Writes a histogram of nanoseconds as percentiles in milliseconds.
#[must_use]
pub fn text(h: &Histogram<u64>) -> String {
    let ms = |ns: f64| ns / 1e6;
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut counted = 0;
    for step in h.iter_quantiles(TICKS) {
        counted += step.count_since_last_iteration();
        let (value, part) = (ms(step.value_iterated_to() as f64), step.quantile_iterated_to());
        text.push_str(&format!("{value:>12.3} {part:>14.12} {counted:>10}"));
        // The last line, which covers all values, has no such number.
        match part < 1.0 {
            true => text.push_str(&format!(" {:>14.2}\n", 1.0 / (1.0 - part))),
            false => text.push('\n'),
        }
    }
    text.push_str(&format!(
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n\
         #[Max     = {:>12.3}, Total count    = {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {SUB_BUCKETS:>12}]\n",
        ms(h.mean()),
        ms(h.stdev()),
        ms(h.max() as f64),
        h.len(),
        h.buckets(),
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_written_as_hdr_tools_read_them() {
        let mut h = Histogram::<u64>::new_with_bounds(1_000, 1_000_000_000, 3).expect("bounds");
        for ms in 1..=1000_u64 {
            h.record(ms * 1_000_000).expect("within them");
        }
        let text = super::text(&h);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        let rows: Vec<_> = lines[2..].iter().take_while(|row| !row[0].starts_with("#[")).collect();
        let half = rows.iter().find(|row| row[1].starts_with("0.500")).expect("a half");
        assert!(half[0].starts_with("500.") && half[3] == "2.00", "{half:?}");
        let last = rows.last().expect("rows");
        assert_eq!((last[1], last[2], last.len()), ("1.000000000000", "1000", 3));
        assert_eq!(
            text.lines().filter(|line| line.starts_with("#[") && line.ends_with(']')).count(),
            3
        );
        assert!(text.contains("Total count    =         1000]"), "{text}");
    }
}
