//! Formats figures narrow enough for a column, and titles for use within a sentence.

use submeter_terminal::{self as show, three_digits};

use submeter_http::wire::Shape;

/// Writes a figure as its view says.
pub(super) fn figure(shape: Shape, value: Option<f64>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    match shape {
        Shape::Rate => rate(value),
        Shape::ByteRate => format!("{}/s", show::bytes(whole(value))),
        Shape::Share | Shape::Cores => percent(value),
        Shape::Count => show::count(whole(value)),
        Shape::Bytes => show::bytes(whole(value)),
        Shape::Time => show::time(whole(value)),
    }
}

/// Shows a gauge as zero when it is below zero for a moment, because a subtraction came first.
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// Writes a rate with three digits: `0`, `0.4`, `812`, `12.3k`.
fn rate(n: f64) -> String {
    if n <= 0.0 {
        return "0".to_owned();
    }
    if n < 0.05 {
        return "<0.1".to_owned();
    }
    for (size, unit) in [(1.0, ""), (1e3, "k"), (1e6, "M")] {
        if n < size * 999.5 {
            return if size > 1.0 { three_digits(n / size) + unit } else { unscaled(n) };
        }
    }
    three_digits(n / 1e9) + "G"
}

/// Writes a share as a percentage.
fn percent(share: f64) -> String {
    match share {
        share if share >= 0.9995 => format!("{:.0} %", share * 100.0),
        share if share > 0.0 => format!("{:.1} %", share * 100.0),
        _ => "0 %".to_owned(),
    }
}

/// Writes a rate without a prefix, with at most one decimal: a column has no room for more.
fn unscaled(n: f64) -> String {
    let digits = usize::from(n < 99.95 && n.fract() > 0.0);
    format!("{n:.digits$}")
}

/// Returns a title as it is written within a sentence: `CPU` and `p99` stay as they are.
pub(super) fn in_a_sentence(title: &str) -> String {
    let mut chars = title.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(title.chars().skip(1)).collect()
        }
        _ => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0"),
            (0.01, "<0.1"),
            (0.4, "0.4"),
            (7.0, "7"),
            (812.3, "812"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (2_500_000.0, "2.50M"),
            (7e9, "7.00G"),
        ];
        for (n, expected) in cases {
            assert_eq!(rate(n), expected, "{n}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(figure(Shape::Share, None), "–");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.8765), "87.6 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(1.5), "150 %");
    }
}
