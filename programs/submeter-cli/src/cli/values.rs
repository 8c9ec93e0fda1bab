//! Values of flags that clap has no type for.

use std::net::SocketAddr;

use submeter_terminal::short;

/// Parses the permissions of a file.
pub(crate) fn file_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| {
        format!("{:?} is not a mode: use three octal digits, as in 660", short(text))
    })
}

/// Parses the address of a port.
pub(crate) fn ip_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{:?} is not an address: use IP:PORT, such as 127.0.0.1:9411", short(text))
    })
}

/// Parses the name of a host, as it stands in a URL between `//` and the port.
pub(crate) fn host_name(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(legal) {
        return Err(format!("{:?} is not a host name: omit scheme and port", short(text)));
    }
    Ok(text.to_owned())
}

/// Parses the delimiter of tenant names.
pub(crate) fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        // Letters and digits would cut names and keys apart; `/` already separates groups.
        [byte] if byte.is_ascii_punctuation() && *byte != b'/' => Ok(*byte),
        _ => Err(format!(
            "{text:?} is not a delimiter: use one ASCII punctuation character other than '/'"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_told_what_is_missing() {
        assert!(ip_and_port("[::1]:0").is_ok());
        for text in ["", "0", ":9411", "*:9411", "localhost:9411", "127.0.0.1"] {
            assert!(ip_and_port(text).is_err_and(|why| why.contains("IP:PORT")), "{text}");
        }
    }

    #[test]
    fn delimiters_are_single_marks() {
        assert_eq!(delimiter(":"), Ok(b':'));
        for text in ["", "::", "a", "/", " ", "é", "7"] {
            assert!(delimiter(text).is_err(), "{text}");
        }
    }
}
