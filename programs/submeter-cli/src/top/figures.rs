//! Formats figures narrow enough for a column.

use submeter_terminal::three_digits;

/// Writes a rate with three digits: `0`, `0.4`, `812`, `12.3k`.
pub(super) fn rate(n: f64) -> String {
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

/// Writes a share as a percentage; a dash if there is none.
pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        None => "–".to_owned(),
        Some(share) if share >= 0.9995 => format!("{:.0} %", share * 100.0),
        Some(share) if share > 0.0 => format!("{:.1} %", share * 100.0),
        Some(_) => "0 %".to_owned(),
    }
}

/// Writes a time; a dash if there is none.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), submeter_terminal::time)
}

/// Writes a rate without a prefix, with at most one decimal: a column has no room for more.
fn unscaled(n: f64) -> String {
    let digits = usize::from(n < 99.95 && n.fract() > 0.0);
    format!("{n:.digits$}")
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
        assert_eq!(percent(None), "–");
        assert_eq!(percent(Some(0.0)), "0 %");
        assert_eq!(percent(Some(0.8765)), "87.6 %");
        assert_eq!(percent(Some(1.0)), "100 %");
        assert_eq!(percent(Some(1.5)), "150 %");
    }
}
