//! Values of flags that clap has no type for.

use std::str::FromStr;

use submeter_terminal::short;

/// A number of bytes: `4096`, `64k`, `1.5m`, `2g` (powers of 1024, either case, `KiB` as well).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// The largest size that can be written, less a byte.
const SIZE_MAX: &str = "16777215t";

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("{:?} is not a size: write bytes, or 64k, 1.5m, 2g", short(text));
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
        let large = || format!("{:?} is too large a size: {SIZE_MAX} is the most", short(text));
        let bytes = if number.contains('.') {
            // A fraction is converted with 53 bits; no limit is written as 9 PiB to the byte.
            let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
            Some(bytes).filter(|&bytes| bytes < u64::MAX as f64).map(|bytes| bytes as u64)
        } else if number.is_empty() {
            return Err(wrong());
        } else {
            // Only digits: what does not fit is large.
            number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor))
        };
        let bytes = bytes.ok_or_else(large)?;
        if bytes == 0 {
            let text = short(text);
            return Err(format!("{text:?} is no size to work with: it must be at least 1 byte"));
        }
        Ok(Size(bytes))
    }
}

/// Parses the permissions of a file.
pub(crate) fn file_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| {
        format!("{:?} are no permissions: write three octal digits, as in 660", short(text))
    })
}

/// Parses the name of a host, as it stands in a URL between `//` and the port.
pub(crate) fn host_name(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(legal) {
        return Err(format!(
            "{:?} is no name of a host: write it without scheme and port",
            short(text)
        ));
    }
    Ok(text.to_owned())
}

/// Parses the delimiter of tenant names.
pub(crate) fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        // Letters and digits would cut names and keys apart; `/` already separates groups.
        [byte] if byte.is_ascii_punctuation() && *byte != b'/' => Ok(*byte),
        _ => {
            Err(format!("{text:?} is no delimiter: use one ASCII punctuation mark other than '/'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_usual_suffixes_and_nothing_else() {
        for (text, bytes) in
            [("1", 1), ("64m", 64 << 20), ("1.5K", 1536), ("2GiB", 2 << 30), ("512b", 512)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "m", "-1", "1x", "0", "1..2m", "64 m", "99999999999999999999", "nan"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_a_size_is_said_to_be() {
        for text in ["99999999999999999999g", "99999999999999999999", "16777216t", "1e9.5g"] {
            let error = text.parse::<Size>().expect_err(text);
            assert_eq!(error.contains("too large"), !text.contains('e'), "{error}");
        }
        let error = format!("{}.5g", "9".repeat(400)).parse::<Size>().expect_err("large");
        assert!(error.contains("too large"), "{error}");
        assert_eq!(SIZE_MAX.parse(), Ok(Size(((1 << 24) - 1) << 40)));
    }

    #[test]
    fn delimiters_are_single_marks() {
        assert_eq!(delimiter(":"), Ok(b':'));
        for text in ["", "::", "a", "/", " ", "é", "7"] {
            assert!(delimiter(text).is_err(), "{text}");
        }
    }
}
