//! Limits of many groups: lines of a path and its limits.

use std::iter::from_fn;
use std::str::Chars;

use super::GroupLimits;
use super::error::ParseError;

/// Parses lines of a group's path and its limits, and returns each with its line number.
///
/// Blanks separate the two, and limits contain none. A path that contains a blank is quoted as in
/// JSON: `"/a b" 64m`. Otherwise `/acme 64m rate=5/s`, without its comma, would be a limit of a
/// group `/acme 64m`, and none of `/acme`. `#` starts a comment, at the beginning of a line or
/// after a blank. Empty lines are ignored.
///
/// # Examples
/// See the [module](crate::limits).
///
/// # Errors
/// When a line is not of this form. The error has its number.
pub fn parse_lines(text: &str) -> Result<Vec<(usize, GroupLimits)>, ParseError> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .filter_map(|(number, line)| match one(line.trim()) {
            Ok(limits) => Some(Ok((number, limits?))),
            Err(error) => Some(Err(error.at(number))),
        })
        .collect()
}

/// Parses a line, which may be empty or a comment.
fn one(line: &str) -> Result<Option<GroupLimits>, ParseError> {
    let unquoted;
    let (path, rest) = match line.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or_else(|| {
            let what = "has an invalid quoted path: quote it as in JSON, such as \"/a b\"";
            ParseError::new(line, what)
        })?,
        None => {
            unquoted = without_comment(line);
            if unquoted.is_empty() {
                return Ok(None);
            }
            let end = unquoted.find(char::is_whitespace).unwrap_or(unquoted.len());
            (unquoted[..end].to_owned(), &unquoted[end..])
        }
    };
    let limits = without_comment(rest).trim_start();
    if limits.is_empty() {
        return Err(ParseError::new(line, "has no limit"));
    }
    if limits.contains(char::is_whitespace) {
        let what = "has a blank too many: separate limits by commas alone, such as 64m,rate=5/s, \
                    and quote a path that contains a blank, such as \"/a b\" 64m";
        return Err(ParseError::new(line, what));
    }
    GroupLimits::new(&path, limits).map(Some)
}

fn without_comment(line: &str) -> &str {
    let mut marks = line.match_indices('#').map(|(at, _)| at);
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = marks.find(|&at| begins(at));
    line[..comment.unwrap_or(line.len())].trim_end()
}

/// Reads a JSON string after its first quote, and returns what follows the last. It does not use
/// serde_json, which only programs that save totals compile.
pub(super) fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut rest = quoted.chars();
    let mut read = String::new();
    loop {
        read.push(match rest.next()? {
            '"' => return Some((read, rest.as_str())),
            '\\' => match rest.next()? {
                c @ ('"' | '\\' | '/') => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => escaped(&mut rest)?,
                _ => return None,
            },
            c if c < ' ' => return None,
            c => c,
        });
    }
}

/// Reads the digits of `\u`, and those of the other half of a surrogate pair.
fn escaped(rest: &mut Chars<'_>) -> Option<char> {
    let first = unit(rest)?;
    let mut units = [first].into_iter().chain(from_fn(|| {
        let is_next = rest.next()? == '\\' && rest.next()? == 'u';
        is_next.then(|| unit(rest))?
    }));
    char::decode_utf16(&mut units).next()?.ok()
}

fn unit(rest: &mut Chars<'_>) -> Option<u16> {
    let digits = rest.as_str().get(..4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    let unit = u16::from_str_radix(digits?, 16).ok();
    rest.nth(3);
    unit
}
