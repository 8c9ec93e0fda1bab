//! Finds the request at the front of a buffer.

use std::borrow::Cow;

use super::command::Command;
use super::{Access, KEYS_LINE_MAX, LINE_MAX, Refusal, Request, classic, meta, reply, token};
use crate::users::LOGIN_MAX;

/// The parser of one connection's bytes.
#[derive(Debug)]
pub(crate) struct Parser {
    value_max: usize,
    access: Access,
    /// Number of bytes of a refused value still to come.
    swallow: u64,
    /// Number of bytes at the front known not to contain the end of a line: without this, a line
    /// that arrives byte by byte would be searched once per byte.
    searched: usize,
}

/// The item at the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    /// Number of bytes of the buffer that it takes.
    pub(crate) consumed: usize,
    pub(crate) outcome: Outcome<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    /// Nothing is complete, and nothing will be before the buffer holds this many bytes.
    More {
        wanted: usize,
    },
    /// Bytes of a value that was refused.
    Swallowed,
    Request(Request<'a>),
    /// The user that the client claims to be, and the password.
    Login(&'a [u8]),
    Refused(Refusal<'a>),
    /// The other end speaks another protocol (this one, if it is known), or its line has no end:
    /// the connection ends without an answer, which that protocol might mistake for one of its own.
    Foreign(Option<&'static str>),
}

impl Parser {
    pub(crate) fn new(value_max: usize, access: Access) -> Parser {
        Parser { value_max, access, swallow: 0, searched: 0 }
    }

    /// Grants the client these rights from the next request on.
    pub(crate) fn allow(&mut self, access: Access) {
        self.access = access;
    }

    /// Parses the front of `input`, which after [`Outcome::More`] must begin with what it held
    /// then. The result does not depend on what follows, except that skipped bytes are reported as
    /// they arrive.
    pub(crate) fn step<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if input.is_empty() {
            return Step { consumed: 0, outcome: Outcome::More { wanted: 1 } };
        }
        if self.swallow > 0 {
            let consumed =
                usize::try_from(self.swallow).map_or(input.len(), |n| n.min(input.len()));
            self.swallow -= consumed as u64;
            return Step { consumed, outcome: Outcome::Swallowed };
        }
        match input {
            [0x80, ..] => return foreign(BINARY),
            // A handshake of any version.
            [0x16] => return Step { consumed: 0, outcome: Outcome::More { wanted: 2 } },
            [0x16, 0x03, ..] => return foreign(TLS),
            _ => {}
        }
        // Before the login there are no long lists of keys.
        let most = if self.access == Access::Login { LINE_MAX } else { line_max(input) };
        let seen = &input[..input.len().min(most)];
        let searched = std::mem::take(&mut self.searched);
        let Some(end) = memchr::memchr(b'\n', &seen[searched..]) else {
            self.searched = seen.len();
            let outcome = if input.len() >= most {
                Outcome::Foreign(None)
            } else {
                Outcome::More { wanted: input.len() + 1 }
            };
            return Step { consumed: 0, outcome };
        };
        let end = searched + end;
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.line(input, line, end + 1)
    }

    fn line<'a>(&mut self, input: &'a [u8], line: &'a [u8], consumed: usize) -> Step<'a> {
        // memcached ends a line at a NUL, and then acts on a key that the client did not name.
        if memchr::memchr(0, line).is_some() {
            let outcome = Outcome::Refused(Refusal::new(reply::BAD_FORMAT));
            return Step { consumed, outcome };
        }
        let parse = match token::first(line).0 {
            b"mg" | b"ms" | b"md" | b"ma" | b"me" => meta::line,
            _ => classic::line,
        };
        let login = self.access == Access::Login;
        let value_max = if login { self.value_max.max(LOGIN_MAX) } else { self.value_max };
        match self.access.restrict(parse(line, value_max)) {
            Command::Request(request) => Step { consumed, outcome: Outcome::Request(request) },
            Command::Refused(refusal) => Step { consumed, outcome: Outcome::Refused(refusal) },
            Command::Foreign => foreign(HTTP),
            Command::RefusedValue(refusal, swallow) => {
                self.swallow = swallow;
                Step { consumed, outcome: Outcome::Refused(refusal) }
            }
            Command::Value(request, len) => {
                let Step { consumed, outcome } = value(input, consumed, len, request);
                let outcome = match outcome {
                    Outcome::Request(Request::Store { value, .. }) if login => {
                        Outcome::Login(value)
                    }
                    // A failed login is charged to no tenant and creates none, not even by a bad
                    // chunk.
                    Outcome::Refused(refusal) if login => {
                        let refused = Refusal::new(reply::UNAUTHENTICATED);
                        Outcome::Refused(refused.quiet_if(refusal.quiet))
                    }
                    outcome => outcome,
                };
                Step { consumed, outcome }
            }
        }
    }
}

/// Protocols of clients that have the wrong port or a wrong setting. Each is recognised by the
/// first bytes of a request: some send no end of a line and would wait for an answer.
const HTTP: &str = "HTTP";
const BINARY: &str = "memcached's binary protocol";
const TLS: &str = "TLS";

fn foreign<'a>(protocol: &'static str) -> Step<'a> {
    Step { consumed: 0, outcome: Outcome::Foreign(Some(protocol)) }
}

/// Completes a store with its value, or asks for the bytes that are missing.
fn value<'a>(input: &'a [u8], at: usize, len: usize, request: Request<'a>) -> Step<'a> {
    let total = at + len + 2;
    if input.len() < total {
        return Step { consumed: 0, outcome: Outcome::More { wanted: total } };
    }
    let data = &input[at..at + len];
    let whole = &input[at + len..total] == b"\r\n";
    let outcome = match request {
        Request::Store { mode, key, flags, exptime, cas, quiet, .. } if whole => {
            Outcome::Request(Request::Store { mode, key, flags, exptime, cas, value: data, quiet })
        }
        Request::Store { key, quiet, .. } => {
            Outcome::Refused(bad_chunk(key.into()).quiet_if(quiet))
        }
        Request::Meta(mut meta) if whole => {
            meta.value = data;
            Outcome::Request(Request::Meta(meta))
        }
        // A meta request's error is never silent.
        Request::Meta(meta) => Outcome::Refused(bad_chunk(meta.key)),
        _ => unreachable!("only stores carry a value"),
    };
    Step { consumed: total, outcome }
}

fn bad_chunk(key: Cow<'_, [u8]>) -> Refusal<'_> {
    Refusal { store: Some(key), ..Refusal::new(reply::BAD_CHUNK) }
}

/// Returns the maximum length of the line at the front. Only its first word decides, so that the
/// result does not change while the line arrives.
fn line_max(input: &[u8]) -> usize {
    let (word, _) = token::first(&input[..input.len().min(LINE_MAX)]);
    match word {
        b"get" | b"gets" | b"gat" | b"gats" => KEYS_LINE_MAX,
        _ => LINE_MAX,
    }
}
