//! Command lines of the meta protocol: a key, then flags of one letter with or without a token.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::command::{Command, length, refuse};
use super::token::{self, Words};
use super::{KEY_MAX, Mode, Refusal, Request, reply};

/// Maximum length of an opaque token with its letter, in bytes.
const OPAQUE_MAX: usize = 32;

/// Maximum number of words of a meta command that memcached accepts.
const META_WORDS_MAX: usize = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Set(Mode),
    Delete,
    /// Whether the number goes up.
    Arithmetic(bool),
    Debug,
}

/// One meta request other than `mn`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meta<'a> {
    pub(crate) verb: Verb,
    /// The key, decoded.
    pub(crate) key: Cow<'a, [u8]>,
    /// Whether the key came in base64.
    pub(crate) binary: bool,
    pub(crate) flags: Flags,
    /// The flags as they were sent: answers repeat some of them, in their order.
    pub(crate) tokens: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// The meaning of a meta request's flags. Flags that only ask for something in the answer stay in
/// [`Meta::tokens`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// `q`
    pub(crate) quiet: bool,
    /// `u`
    pub(crate) no_update: bool,
    /// `v`
    pub(crate) value: bool,
    /// `I`
    pub(crate) invalidate: bool,
    /// `x`
    pub(crate) drop_value: bool,
    /// `C`
    pub(crate) cas: Option<u64>,
    /// `E`
    pub(crate) new_cas: Option<u64>,
    /// `T`
    pub(crate) exptime: Option<i64>,
    /// `N`
    pub(crate) vivify: Option<i64>,
    /// `R`
    pub(crate) recache: Option<i64>,
    /// `F`
    pub(crate) client_flags: u32,
    /// `J`
    pub(crate) initial: u64,
    /// `D`
    pub(crate) delta: Option<u64>,
    mode: Option<u8>,
    binary: bool,
    opaque_too_long: bool,
}

/// Parses the line of any meta command except `mn`.
pub(super) fn line(line: &[u8], value_max: usize) -> Command<'_> {
    let words = Words::new(line);
    match words.get(0) {
        b"ms" => set(line, &words, value_max),
        b"me" => debug(line, &words),
        b"mg" => simple(line, &words, Verb::Get),
        b"md" => simple(line, &words, Verb::Delete),
        _ => simple(line, &words, Verb::Arithmetic(true)),
    }
}

fn simple<'a>(line: &'a [u8], words: &Words<'a>, verb: Verb) -> Command<'a> {
    let key = words.get(1);
    if words.len() < 2 || key.len() > KEY_MAX {
        return refuse(reply::BAD_FORMAT);
    }
    if words.len() > META_WORDS_MAX {
        return refuse(if verb == Verb::Get {
            "CLIENT_ERROR options flags are too long"
        } else {
            "CLIENT_ERROR options flags too long"
        });
    }
    let parsed = Flags::parse(words.from(2)).and_then(|flags| Ok((decode(key, &flags)?, flags)));
    let (key, flags) = match parsed {
        Ok(parsed) => parsed,
        // memcached gives the specific error only for `mg` and `ms`.
        Err(reply) if verb == Verb::Get => return refuse(reply),
        Err(_) => return refuse("CLIENT_ERROR invalid or duplicate flag"),
    };
    if flags.opaque_too_long {
        return refuse("CLIENT_ERROR opaque token too long");
    }
    let verb = match (verb, flags.mode) {
        (Verb::Arithmetic(_), None | Some(b'I' | b'i' | b'+')) => Verb::Arithmetic(true),
        (Verb::Arithmetic(_), Some(b'D' | b'd' | b'-')) => Verb::Arithmetic(false),
        (Verb::Arithmetic(_), _) => return refuse("CLIENT_ERROR invalid mode for ma M token"),
        (verb, _) => verb,
    };
    let tokens = after(line, 2);
    let binary = flags.binary;
    Command::Request(Request::Meta(Meta { verb, key, binary, flags, tokens, value: b"" }))
}

fn set<'a>(line: &'a [u8], words: &Words<'a>, value_max: usize) -> Command<'a> {
    let Some(length) = length(words.get(2)) else { return refuse(reply::BAD_FORMAT) };
    // From here on the value's length is known, so that the requests after an error can be parsed.
    let swallow = length as u64 + 2;
    let refused = |reply| Command::RefusedValue(Refusal::new(reply), swallow);
    let key = words.get(1);
    if key.len() > KEY_MAX {
        return refused(reply::BAD_FORMAT);
    }
    if words.len() > META_WORDS_MAX {
        return refused("CLIENT_ERROR options flags too long");
    }
    let parsed = Flags::parse(words.from(3)).and_then(|flags| Ok((decode(key, &flags)?, flags)));
    let (decoded, flags) = match parsed {
        Ok(parsed) => parsed,
        Err(reply) => return refused(reply),
    };
    let mode = match flags.mode {
        None | Some(b'S' | b's') => Mode::Set,
        Some(b'E' | b'e') => Mode::Add,
        Some(b'A' | b'a') => Mode::Append,
        Some(b'P' | b'p') => Mode::Prepend,
        Some(b'R' | b'r') => Mode::Replace,
        Some(_) => return refused("CLIENT_ERROR invalid mode for ms M token"),
    };
    if flags.opaque_too_long {
        return refused("CLIENT_ERROR opaque token too long");
    }
    if length > value_max {
        let store = Some(decoded);
        let refusal = Refusal { reply: reply::TOO_LARGE, quiet: false, store, purge: true };
        return Command::RefusedValue(refusal, swallow);
    }
    // A `cas` turns a plain store into a compared one.
    let mode = match mode {
        Mode::Set | Mode::Replace if flags.cas.is_some() => Mode::Cas,
        mode => mode,
    };
    let (tokens, binary) = (after(line, 3), flags.binary);
    let verb = Verb::Set(mode);
    Command::Value(
        Request::Meta(Meta { verb, key: decoded, binary, flags, tokens, value: b"" }),
        length,
    )
}

fn debug<'a>(line: &'a [u8], words: &Words<'a>) -> Command<'a> {
    let key = words.get(1);
    if words.len() < 2 || key.len() > KEY_MAX {
        return refuse(reply::BAD_FORMAT);
    }
    let flags = Flags { binary: words.get(2) == b"b", ..Flags::default() };
    let Ok(key) = decode(key, &flags) else { return refuse(reply::BAD_FORMAT) };
    let (tokens, binary) = (after(line, 2), flags.binary);
    Command::Request(Request::Meta(Meta {
        verb: Verb::Debug,
        key,
        binary,
        flags,
        tokens,
        value: b"",
    }))
}

fn decode<'a>(key: &'a [u8], flags: &Flags) -> Result<Cow<'a, [u8]>, &'static str> {
    if !flags.binary {
        return Ok(Cow::Borrowed(key));
    }
    match BASE64.decode(key) {
        Ok(decoded) if !decoded.is_empty() => Ok(Cow::Owned(decoded)),
        _ => Err("CLIENT_ERROR error decoding key"),
    }
}

/// Returns what follows the first `n` words of a line.
fn after(line: &[u8], n: usize) -> &[u8] {
    (0..n).fold(line, |rest, _| token::first(rest).1)
}

impl Flags {
    /// Reads all flags. As in memcached the last bad token decides the error, except that an
    /// unknown or repeated flag is an error at once.
    fn parse(words: &[&[u8]]) -> Result<Flags, &'static str> {
        let mut flags = Flags::default();
        let mut seen = 0u128;
        let mut error = None;
        for word in words {
            let (letter, argument) = (word[0], &word[1..]);
            if letter >= 127 || seen & (1 << letter) != 0 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= 1 << letter;
            if let Err(reply) = flags.set(letter, argument) {
                if reply == INVALID_FLAG {
                    return Err(reply);
                }
                error = Some(reply);
            }
        }
        error.map_or(Ok(flags), Err)
    }

    fn set(&mut self, letter: u8, argument: &[u8]) -> Result<(), &'static str> {
        let signed = || token::signed(argument).ok_or(BAD_TOKEN);
        let unsigned = || token::unsigned(argument).ok_or(BAD_TOKEN);
        match letter {
            b'b' => self.binary = true,
            b'N' => self.vivify = Some(signed()?),
            b'T' => self.exptime = Some(signed()?),
            b'R' => self.recache = Some(signed()?),
            b'O' => self.opaque_too_long = argument.len() + 1 > OPAQUE_MAX,
            // Answers repeat these, or a proxy reads them.
            b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
            b'v' => self.value = true,
            b'u' => self.no_update = true,
            b'q' => self.quiet = true,
            b'I' => self.invalidate = true,
            b'x' => self.drop_value = true,
            b'F' => self.client_flags = token::flags(argument).ok_or(reply::BAD_FORMAT)?,
            b'C' => self.cas = Some(unsigned()?),
            b'E' => self.new_cas = Some(unsigned()?),
            b'M' => match argument {
                [mode] => self.mode = Some(*mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => {
                self.initial =
                    unsigned().map_err(|_| "CLIENT_ERROR invalid numeric initial value")?;
            }
            b'D' => {
                self.delta =
                    Some(unsigned().map_err(|_| "CLIENT_ERROR invalid numeric delta value")?);
            }
            _ => return Err(INVALID_FLAG),
        }
        Ok(())
    }
}

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
