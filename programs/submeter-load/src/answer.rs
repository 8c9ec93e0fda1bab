//! Parses one answer of the text protocol from the front of the received bytes.

use super::verb::Verb;

/// Maximum length of an answer's line: far more than a key, flags, length and token need.
const LINE_MAX: usize = 1024;

/// A server's answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// A retrieval found the item.
    Value { key: &'a [u8], flags: u32, data: &'a [u8], token: Option<u64> },
    /// A retrieval found nothing.
    Miss,
    /// `STORED`, `DELETED`, `TOUCHED`, or the number that incr and decr return.
    Done,
    /// `NOT_STORED`: the condition of add, replace, append or prepend did not hold.
    NotStored,
    /// `EXISTS`: another client changed the item after its token was read.
    Exists,
    /// `NOT_FOUND`.
    NotFound,
    /// `SERVER_ERROR`: refused, usually for lack of memory.
    Refused(&'a [u8]),
}

/// Parses the answer to a `verb` request and returns its length; `None` if it is still incomplete.
///
/// # Errors
/// The line that is not an answer to such a request.
pub(crate) fn parse(verb: Verb, bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, &[u8]> {
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    if line.starts_with(b"SERVER_ERROR") {
        return Ok(Some((Answer::Refused(line), after)));
    }
    if verb.retrieves() {
        return value(verb, line, after, bytes);
    }
    let answer = match (verb, line) {
        (Verb::Delete, b"DELETED") | (Verb::Touch, b"TOUCHED") => Answer::Done,
        (Verb::Delete | Verb::Touch | Verb::Cas, b"NOT_FOUND") => Answer::NotFound,
        (Verb::Incr | Verb::Decr, b"NOT_FOUND") => Answer::NotFound,
        (Verb::Incr | Verb::Decr, number) if decimal(number).is_some() => Answer::Done,
        (Verb::Set | Verb::Add | Verb::Replace, b"STORED") => Answer::Done,
        (Verb::Append | Verb::Prepend | Verb::Cas, b"STORED") => Answer::Done,
        (Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend, b"NOT_STORED") => {
            Answer::NotStored
        }
        (Verb::Cas, b"EXISTS") => Answer::Exists,
        _ => return Err(line),
    };
    Ok(Some((answer, after)))
}

fn value<'a>(
    verb: Verb,
    first: &'a [u8],
    after: usize,
    bytes: &'a [u8],
) -> Result<Option<(Answer<'a>, usize)>, &'a [u8]> {
    if first == b"END" {
        return Ok(Some((Answer::Miss, after)));
    }
    let mut words = first.split(|&byte| byte == b' ');
    let header = (|| {
        if words.next()? != b"VALUE" {
            return None;
        }
        let key = words.next()?;
        let flags = u32::try_from(decimal(words.next()?)?).ok()?;
        let len = usize::try_from(decimal(words.next()?)?).ok()?;
        let token = if verb.gets_token() { Some(decimal(words.next()?)?) } else { None };
        // No server holds values above 1 GiB, and the client must not wait for a wrong length.
        (words.next().is_none() && len <= 1 << 30).then_some((key, flags, len, token))
    })();
    let (key, flags, len, token) = header.ok_or(first)?;
    const TAIL: &[u8] = b"\r\nEND\r\n";
    let end = after + len;
    let Some(tail) = bytes.get(end..end + TAIL.len()) else { return Ok(None) };
    if tail != TAIL {
        return Err(first);
    }
    let data = &bytes[after..end];
    Ok(Some((Answer::Value { key, flags, data, token }, end + TAIL.len())))
}

/// Returns the first line without its end, and the offset of the next.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, &[u8]> {
    let window = &bytes[..bytes.len().min(LINE_MAX)];
    match window.windows(2).position(|two| two == b"\r\n") {
        Some(at) => Ok(Some((&bytes[..at], at + 2))),
        None if bytes.len() >= LINE_MAX => Err(window),
        None => Ok(None),
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_at_its_last_byte_only() {
        let data = b"a\r\nEND\r\nb";
        let value = |token| Answer::Value { key: b"k", flags: 7, data, token };
        let cases: [(Verb, &[u8], Answer<'_>); 9] = [
            (Verb::Get, b"END\r\n", Answer::Miss),
            (Verb::Gat, b"VALUE k 7 9\r\na\r\nEND\r\nb\r\nEND\r\n", value(None)),
            (Verb::Gets, b"VALUE k 7 9 44\r\na\r\nEND\r\nb\r\nEND\r\n", value(Some(44))),
            (Verb::Set, b"STORED\r\n", Answer::Done),
            (Verb::Cas, b"EXISTS\r\n", Answer::Exists),
            (Verb::Delete, b"NOT_FOUND\r\n", Answer::NotFound),
            (Verb::Incr, b"18446744073709551615\r\n", Answer::Done),
            (Verb::Touch, b"TOUCHED\r\n", Answer::Done),
            (Verb::Prepend, b"SERVER_ERROR no\r\n", Answer::Refused(b"SERVER_ERROR no")),
        ];
        for (verb, bytes, answer) in cases {
            let more = [bytes, b"VALUE next"].concat();
            assert_eq!(parse(verb, &more), Ok(Some((answer, bytes.len()))));
            for cut in 0..bytes.len() {
                assert_eq!(parse(verb, &bytes[..cut]), Ok(None), "{verb:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_line_that_answers_no_request_is_an_error() {
        let long = [b'x'; 2000];
        let cases: [(Verb, &[u8]); 10] = [
            (Verb::Get, b"STORED\r\n"),
            (Verb::Get, b"VALUE k 7\r\n"),
            (Verb::Get, b"VALUE k 7 1 9\r\nx\r\nEND\r\n"),
            (Verb::Gets, b"VALUE k 7 1\r\nx\r\nEND\r\n"),
            (Verb::Get, b"VALUE k 7 1\r\nxyz\r\nEND\r\n"),
            (Verb::Get, b"VALUE k 7 99999999999\r\n"),
            (Verb::Set, b"END\r\n"),
            (Verb::Set, b"ERROR\r\n"),
            (Verb::Incr, b"CLIENT_ERROR no number\r\n"),
            (Verb::Delete, &long),
        ];
        for (verb, bytes) in cases {
            assert!(parse(verb, bytes).is_err(), "{verb:?} {}", bytes.escape_ascii());
        }
    }
}
