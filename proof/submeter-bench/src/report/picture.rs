//! The picture of the README: the hit ratios of two neighbours in the cache that they share.

use super::plot::{self, Frame};
use super::plots;
use super::record::Record;

const TABLE: &str = "neighbours";

/// The bars from the top: the tenant, the variant, and the bar's label.
const BARS: [(&str, &str, &str); 5] = [
    ("quiet", "alone", "quiet tenant, alone"),
    ("quiet", "unprotected", "beside a loud one"),
    ("quiet", "protected", "the same, with low=12m"),
    ("loud", "unprotected", "loud tenant"),
    ("loud", "protected", "where the quiet has low=12m"),
];

/// Draws the hit ratios of a record.
///
/// # Errors
/// When the record lacks one of them.
pub(crate) fn picture(record: &Record) -> Result<String, String> {
    let mut strips = Vec::new();
    for (tenant, variant, name) in BARS {
        let row = record.table(TABLE).find(|row| {
            let is = |param: &str, word: &str| row.params.get(param) == Some(word);
            row.variant == *variant && is("measure", "hit_ratio") && is("tenant", tenant)
        });
        let look = usize::from(tenant == "loud");
        let strip = row.and_then(|row| plots::strip(row, name, look));
        strips.push(strip.ok_or_else(|| {
            format!("the record has no hit ratio of {tenant}, {variant}: measure {TABLE} again")
        })?);
    }
    let frame = Frame {
        title: "What two tenants of one cache find".to_owned(),
        description: strips
            .iter()
            .map(|strip| format!("{}: {:.1} %", strip.name, strip.value))
            .collect::<Vec<_>>()
            .join("; "),
        across: "gets that found their item, in percent".to_owned(),
        across_unit: "%".to_owned(),
        ..Frame::default()
    };
    plot::strips(&frame, &strips).map_err(|error| format!("the picture cannot be drawn: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture has a bar for each tenant; without a record of it the error says what to do.
    #[test]
    fn the_picture_has_a_bar_for_each_tenant() {
        let row = |(tenant, variant, _): &(&str, &str, &str)| {
            format!(
                r#"{{"table": "neighbours", "params": {{"measure": "hit_ratio", "tenant":
                "{tenant}"}}, "variant": "{variant}", "value": 71.5, "unit": "%",
                "samples": [71.0, 72.0]}}"#
            )
        };
        let record = |bars: &[(&str, &str, &str)]| {
            let rows: Vec<String> = bars.iter().map(row).collect();
            let text = format!(
                r#"{{"machine": {{"arch": "x86_64", "cpus": 2, "kernel": "6.18", "backend": "rseq",
                "backend_reason": "", "date": "2026-11-24T00:00:00Z", "version": "0.1.0",
                "rustc": "rustc 1.95.0", "clock": "", "warnings": []}}, "rows": [{}]}}"#,
                rows.join(",")
            );
            Record::parse(&text).expect("a record")
        };
        let svg = picture(&record(&BARS)).expect("all are there");
        assert!(svg.starts_with("<svg") && svg.contains("xmlns="), "a file of its own: {svg}");
        for (_, _, name) in BARS {
            assert!(
                svg.matches(name).count() >= 2,
                "in the drawing and in its description: {name}"
            );
        }
        let error = picture(&record(&BARS[..4])).expect_err("the last is missing");
        assert!(error.contains("loud, protected") && error.contains("measure neighbours"));
    }
}
