//! The error of a text that is not a limit.

use std::borrow::Cow;
use std::fmt;

/// The error of a text that is not a limit. Its own text is one line, which names the input and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    line: Option<usize>,
    input: String,
    what: Cow<'static, str>,
}

impl ParseError {
    pub(super) fn new(input: &str, what: impl Into<Cow<'static, str>>) -> ParseError {
        ParseError { line: None, input: short(input), what: what.into() }
    }

    pub(super) fn at(self, line: usize) -> ParseError {
        ParseError { line: Some(line), ..self }
    }

    /// Returns the number of the wrong line, from 1, if the text has lines.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { line, input, what } = self;
        match line {
            None => write!(f, "{input:?} {what}"),
            Some(line) => write!(
                f,
                "line {line}: {input:?} {what} (a line is \"/PATH SIZE,rate=N/s\", such as \
                 \"/acme 64m\" or \"/acme rate=20000/s\")"
            ),
        }
    }
}

impl std::error::Error for ParseError {}

/// Maximum number of characters that an error repeats: the input may be a whole file of something
/// else.
const SHOWN: usize = 200;

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
    }
}
