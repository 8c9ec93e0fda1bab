//! Formats figures for reading: three digits, a prefix, a unit.

/// A non-breaking space between a number and its unit.
const JOIN: char = '\u{a0}';

/// Seconds in each unit of time that records use.
const TIMES: [(&str, f64); 5] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// Writes a value with its unit: `617 M loops/s`, `1.09 ns`, `6.4 %`.
pub(super) fn amount(value: f64, unit: &str) -> String {
    let (number, unit) = scaled(value, unit);
    let number = digits(number);
    if unit.is_empty() { number } else { format!("{number}{JOIN}{unit}") }
}

/// Writes a value for an axis, where space is short: `10 M`, `1 µs`.
pub(super) fn tick(value: f64, unit: &str) -> String {
    let (number, scaled_unit) = scaled(value, unit);
    let number = trimmed(digits(number));
    if value == 0.0 {
        return number;
    }
    let short = if is_time(unit) { scaled_unit } else { scaled_unit.replace(unit, "") };
    format!("{number}{JOIN}{}", short.trim()).trim().to_owned()
}

/// Writes a ratio; one close to 1 has a tenth of a percent, because there small differences matter.
pub(super) fn times(ratio: f64) -> String {
    if (0.9..1.1).contains(&ratio) && ratio != 1.0 {
        return format!("{ratio:.3}{JOIN}×");
    }
    format!("{}{JOIN}×", digits(ratio))
}

/// Writes a spread in percent, with two digits: more would not be significant.
pub(super) fn spread(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = if percent < 0.095 { 2 } else { usize::from(percent < 9.5) };
    format!("±{percent:.decimals$}{JOIN}%")
}

/// Writes a share in percent.
pub(super) fn percent(share: f64) -> String {
    // A share this small is a handful among a million: only that it is not zero matters.
    if share > 0.0 && share < 1e-4 {
        return format!("<{JOIN}0.01{JOIN}%");
    }
    format!("{}{JOIN}%", digits(share * 100.0))
}

/// Returns the unit in an axis's label; times have theirs at each tick.
pub(super) fn axis_unit(unit: &str) -> String {
    if is_time(unit) { "time".to_owned() } else { unit.to_owned() }
}

/// Returns the size of a unit of time in seconds; others have no larger one.
pub(super) fn scale(unit: &str) -> f64 {
    TIMES.iter().find(|(name, _)| *name == unit).map_or(1.0, |(_, seconds)| *seconds)
}

/// Returns whether `unit` is a unit of time, where less is better.
pub(super) fn is_time(unit: &str) -> bool {
    TIMES.iter().any(|(name, _)| *name == unit)
}

/// Finds the prefix with which a value has one to three digits before its point.
fn scaled(value: f64, unit: &str) -> (f64, String) {
    if let Some((_, unit_s)) = TIMES.iter().find(|(name, _)| *name == unit) {
        let (name, scale) = match value.abs() * unit_s {
            0.0 if unit == "us" => ("µs", 1.0),
            0.0 => (unit, 1.0),
            small if small < 0.9995e-6 => ("ns", 1e9),
            small if small < 0.9995e-3 => ("µs", 1e6),
            small if small < 0.9995 => ("ms", 1e3),
            _ => ("s", 1.0),
        };
        // Multiplying and dividing again would turn 11 ns into slightly more than 11 ns.
        let factor = if (unit_s * scale - 1.0).abs() < 1e-9 { 1.0 } else { unit_s * scale };
        return (value * factor, name.to_owned());
    }
    // Percentages and ratios take no prefix, and neither do numbers small enough to read.
    let (prefix, scale) = match value.abs() {
        _ if matches!(unit, "%" | "percent" | "x" | "×") => ("", 1.0),
        big if big >= 0.9995e9 => ("G", 1e-9),
        big if big >= 0.9995e6 => ("M", 1e-6),
        big if big >= 99_950.0 => ("k", 1e-3),
        _ => ("", 1.0),
    };
    let unit = match unit {
        "percent" => "%",
        "x" => "×",
        // The column's heading says what is counted.
        "count" => "",
        unit => unit,
    };
    let unit = if prefix.is_empty() || unit.is_empty() {
        format!("{prefix}{unit}")
    } else {
        format!("{prefix}{JOIN}{unit}")
    };
    (value * scale, unit)
}

/// Writes three significant digits; whole numbers have no decimals, and commas between thousands.
pub(super) fn digits(value: f64) -> String {
    let text = submeter_terminal::three_digits(value);
    match text.trim_start_matches('-').parse() {
        Ok(whole) if whole >= 1000 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", submeter_terminal::count(whole))
        }
        _ if value.fract() == 0.0 => trimmed(text),
        _ => text,
    }
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with ordinary spaces.
    fn plain(text: String) -> String {
        text.replace(JOIN, " ")
    }

    /// Amounts have three digits and the prefix that fits.
    #[test]
    fn amounts_have_three_digits_and_a_prefix() {
        for (value, unit, text) in [
            (617_132_445.0, "loops/s", "617 M loops/s"),
            (13_182_362_935.0, "loops/s", "13.2 G loops/s"),
            (1.089_081, "ns", "1.09 ns"),
            (1_605_631.0, "ns", "1.61 ms"),
            (65.866, "us", "65.9 µs"),
            (0.268, "us", "268 ns"),
            (11.0, "ns", "11 ns"),
            (0.0, "us", "0 µs"),
            (491.069_44, "bytes", "491 bytes"),
            (8.0, "bytes", "8 bytes"),
            (4286.9, "", "4,287"),
            (0.001_234, "%", "0.00123 %"),
            (4.7, "x", "4.70 ×"),
            (-0.5, "%", "-0.500 %"),
            (99_999.0, "count", "100 k"),
        ] {
            assert_eq!(plain(amount(value, unit)), text);
        }
    }

    #[test]
    fn ticks_are_short() {
        for (value, unit, text) in [
            (1e7, "loops/s", "10 M"),
            (1e-2, "us", "10 ns"),
            (64.0, "CPUs", "64"),
            (1e6, "groups", "1 M"),
            (0.5, "x", "0.5 ×"),
        ] {
            assert_eq!(plain(tick(value, unit)), text);
        }
        assert_eq!(plain(times(49.605)), "49.6 ×");
        assert_eq!(plain(times(12_345.6)), "12,346 ×");
        assert_eq!(plain(times(1.003)), "1.003 ×");
        assert_eq!(plain(percent(0.0272)), "2.72 %");
        assert_eq!(plain(percent(1e-6)), "< 0.01 %");
        for (share, text) in [(0.0018, "±0.2 %"), (0.58, "±58 %"), (0.0004, "±0.04 %")] {
            assert_eq!(plain(spread(share)), text);
        }
    }
}
