//! Sizes, rates and CPUs as people write them.

use std::time::Duration;

use submeter_percpu::{LimitMode, Rate, WEIGHTS};

use super::error::ParseError;

/// The largest size that can be written, less a byte.
pub(super) const SIZE_MAX: &str = "16777215t";

/// Parses a number of bytes: `4096`, `64k`, `1.5m`, `2g`. Units are powers of 1024, in upper or
/// lower case, optionally followed by `b` or `ib`.
///
/// # Examples
/// ```
/// use submeter::limits::size;
///
/// assert_eq!(size("1.5k")?, 1536);
/// assert_eq!(size("64MiB")?, 64 << 20);
/// # Ok::<(), submeter::limits::ParseError>(())
/// ```
///
/// # Errors
/// When it is not a number, is 0, or does not fit in 64 bits.
pub fn size(text: &str) -> Result<u64, ParseError> {
    let wrong = || ParseError::new(text, "is not a size: use bytes, or 64k, 1.5m, 2g");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let large = || ParseError::new(text, format!("is too large: the maximum size is {SIZE_MAX}"));
    let bytes = if number.contains('.') {
        // A fraction is converted with 53 bits; no one writes a limit of 9 PiB to the byte.
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
        Some(bytes).filter(|&bytes| bytes < u64::MAX as f64).map(|bytes| bytes as u64)
    } else if number.is_empty() {
        return Err(wrong());
    } else {
        // Only digits: what does not fit is too large.
        number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor))
    };
    match bytes.ok_or_else(large)? {
        0 => Err(ParseError::new(text, "is too small: use at least 1 byte")),
        bytes => Ok(bytes),
    }
}

/// Parses a rate: `20000/s`, `20k/s`, `5/min`, `1m/h`, `100/10ms`. Its burst is the whole amount.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Rate, limits};
///
/// assert_eq!(limits::rate("20k/s")?, Rate::new(20_000, Duration::from_secs(1)));
/// # Ok::<(), limits::ParseError>(())
/// ```
///
/// # Errors
/// When it is not a rate, is 0, or does not fit in 64 bits. [`Rate::check`] tells whether a group
/// can keep it.
pub fn rate(text: &str) -> Result<Rate, ParseError> {
    let wrong =
        || ParseError::new(text, "is not a rate: use N/s, N/min, N/h or N/ms, as in 20000/s");
    let (amount, per) = text.split_once('/').ok_or_else(wrong)?;
    let digits = per.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (times, unit) = per.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "min" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(wrong()),
    };
    let large = || ParseError::new(text, "is too large: lower the amount or the time");
    let times = if times.is_empty() { Some(1) } else { times.parse::<u64>().ok() };
    // Only digits: what does not fit is too large.
    let per_ms = times.and_then(|times| times.checked_mul(unit_ms)).ok_or_else(large)?;
    let (digits, factor) = match amount.as_bytes() {
        [.., b'k'] => (&amount[..amount.len() - 1], 1_000),
        [.., b'm'] => (&amount[..amount.len() - 1], 1_000_000),
        _ => (amount, 1),
    };
    if !is_number(digits) {
        return Err(wrong());
    }
    let amount = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    match amount.ok_or_else(large)? {
        0 => Err(ParseError::new(
            text,
            "is too low: the amount is 0, which would grant nothing; the minimum is 1/h, \
             or 1/s for a fleet",
        )),
        amount => Ok(Rate::new(amount, Duration::from_millis(per_ms))),
    }
}

/// The period of a CPU limit: as long as that of Kubernetes' limits. A tenant that was idle may use
/// at once as much as it may use in this time.
pub(super) const CPU_PERIOD: Duration = Duration::from_millis(100);
/// What a thousandth of a CPU amounts to in that time, in nanoseconds.
pub(super) const MILLI_CPU_NS: u64 = 100_000;
/// More than any machine has: a million CPUs.
const CPU_MILLIS_MAX: u64 = 1_000_000_000;

/// Parses CPUs as Kubernetes writes them: `500m`, `0.5`, `2`. The result is the rate of a
/// [`cpu_budget`](crate::SchemaBuilder::cpu_budget), in nanoseconds per 100 ms.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Rate, limits};
///
/// assert_eq!(limits::cpus("500m")?, Rate::new(50_000_000, Duration::from_millis(100)));
/// # Ok::<(), limits::ParseError>(())
/// ```
///
/// # Errors
/// When it is not a number of CPUs, is finer than a thousandth, is 0, or is more than a million.
pub fn cpus(text: &str) -> Result<Rate, ParseError> {
    let error = |what: &'static str| Err(ParseError::new(text, what));
    let (whole, part, unit) = match (text.strip_suffix('m'), text.split_once('.')) {
        (Some(millis), _) => (millis, "0", 1),
        (None, Some((whole, part))) => (whole, part, 1000),
        (None, None) => (text, "0", 1000),
    };
    if !is_number(whole) || !is_number(part) {
        return error("is not a number of CPUs: use thousandths or CPUs, as in 500m, 0.5 or 2");
    }
    let part = part.trim_end_matches('0');
    if part.len() > 3 {
        return error("is finer than a thousandth of a CPU: round it");
    }
    // At most three digits.
    let part = format!("{part:0<3}").parse().unwrap_or(0);
    let millis =
        whole.parse().ok().and_then(|whole: u64| whole.checked_mul(unit)?.checked_add(part));
    match millis {
        Some(0) => error("is too few CPUs: 0 would admit nothing; the minimum is 1m"),
        Some(millis) if millis <= CPU_MILLIS_MAX => {
            Ok(Rate::new(millis * MILLI_CPU_NS, CPU_PERIOD))
        }
        _ => error("is too many CPUs: the maximum is 1000000"),
    }
}

pub(super) fn mode(text: &str) -> Result<LimitMode, ParseError> {
    match text {
        "soft" => Ok(LimitMode::Soft),
        "enforced" => Ok(LimitMode::Enforced),
        _ => Err(ParseError::new(text, "is not a mode: use soft or enforced")),
    }
}

pub(super) fn weight(text: &str) -> Result<u32, ParseError> {
    let weight = text.parse().ok().filter(|weight| WEIGHTS.contains(weight));
    let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
    weight.ok_or_else(|| ParseError::new(text, format!("is not a weight: use {least} to {most}")))
}

pub(super) fn burst(text: &str) -> Result<u64, ParseError> {
    if !is_number(text) {
        return Err(ParseError::new(text, "is not a burst: use digits, as in 500"));
    }
    text.parse().map_err(|_| {
        ParseError::new(text, format!("is too large: the maximum burst is {}", u64::MAX))
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
