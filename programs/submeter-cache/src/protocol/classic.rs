//! Command lines of the classic protocol, and `mn`.

use super::command::{Command, length, refuse};
use super::token::{self, Words};
use super::{KEY_MAX, Mode, Refusal, Request, reply};

/// Parses one command line, without its end.
pub(super) fn line(line: &[u8], value_max: usize) -> Command<'_> {
    let (command, rest) = token::first(line);
    match command {
        b"get" => get(line, rest, false, false),
        b"gets" => get(line, rest, true, false),
        b"gat" => get(line, rest, false, true),
        b"gats" => get(line, rest, true, true),
        b"set" => store(line, Mode::Set, value_max),
        b"mn" => Command::Request(Request::Noop),
        b"add" => store(line, Mode::Add, value_max),
        b"replace" => store(line, Mode::Replace, value_max),
        b"append" => store(line, Mode::Append, value_max),
        b"prepend" => store(line, Mode::Prepend, value_max),
        b"cas" => store(line, Mode::Cas, value_max),
        b"delete" => delete(line),
        b"incr" => arithmetic(line, true),
        b"decr" => arithmetic(line, false),
        b"touch" => touch(line),
        b"flush_all" => flush_all(line),
        b"verbosity" => verbosity(line),
        b"version" => Command::Request(Request::Version),
        b"stats" => {
            let words = Words::new(line);
            Command::Request(Request::Stats { topic: words.get(1), rest: words.get(2) })
        }
        b"shutdown" => shutdown(line),
        b"quit" => Command::Request(Request::Quit),
        _ if is_http(command, line) => Command::Foreign,
        b"" => refuse(reply::BAD_FORMAT),
        _ => refuse(reply::ERROR),
    }
}

/// Returns whether a line that is not a command belongs to HTTP: a request line, or the header
/// without which no browser sends a request. A page of any site could make a browser on this
/// machine post to this port, and the body would be executed as commands.
fn is_http(command: &[u8], line: &[u8]) -> bool {
    let last = line.rsplit(|&byte| byte == b' ').find(|word| !word.is_empty());
    let is_host = command.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"));
    is_host || last.is_some_and(|word| word.starts_with(b"HTTP/"))
}

fn refuse_quiet<'a>(reply: &'static str, quiet: bool) -> Command<'a> {
    Command::Refused(Refusal::new(reply).quiet_if(quiet))
}

fn get<'a>(line: &'a [u8], rest: &'a [u8], with_cas: bool, touches: bool) -> Command<'a> {
    let (word, after) = token::first(rest);
    let (touch, keys) = if touches { (Some(word), after) } else { (None, rest) };
    if token::first(keys).0.is_empty() {
        return refuse(reply::BAD_FORMAT);
    }
    let touch = match touch.map(token::signed) {
        Some(None) => return refuse(reply::BAD_EXPTIME),
        Some(exptime) => exptime,
        None => None,
    };
    // All keys are checked before the first is looked up: memcached answers with the error alone.
    if token::words(keys).any(|key| key.len() > KEY_MAX) {
        return refuse(reply::BAD_FORMAT);
    }
    let keys_at = line.len() - keys.len();
    Command::Request(Request::Get { with_cas, touch, keys_at, keys })
}

fn store(line: &[u8], mode: Mode, value_max: usize) -> Command<'_> {
    let words = Words::new(line);
    let usual = if mode == Mode::Cas { 6 } else { 5 };
    let quiet = words.quiet();
    let Some(length) = length(words.get(4)) else {
        return refuse_quiet(reply::BAD_FORMAT, quiet);
    };
    // From here on the value's length is known. The value is skipped with the line: if it were
    // parsed as commands, the author of a value could speak for the client that stores it.
    let refused = || {
        let refusal = Refusal::new(reply::BAD_FORMAT).quiet_if(quiet);
        Command::RefusedValue(refusal, length as u64 + 2)
    };
    let key = words.get(1);
    if !(usual..=usual + 1).contains(&words.len()) || key.len() > KEY_MAX {
        return refused();
    }
    let cas = if mode == Mode::Cas { token::unsigned(words.get(5)) } else { Some(0) };
    let numbers = (token::flags(words.get(2)), token::signed(words.get(3)));
    let (Some(cas), (Some(flags), Some(exptime))) = (cas, numbers) else { return refused() };
    if length > value_max {
        let purge = mode == Mode::Set;
        let refusal = Refusal { reply: reply::TOO_LARGE, quiet, store: Some(key.into()), purge };
        return Command::RefusedValue(refusal, length as u64 + 2);
    }
    Command::Value(Request::Store { mode, key, flags, exptime, cas, value: b"", quiet }, length)
}

fn delete(line: &[u8]) -> Command<'_> {
    let words = Words::new(line);
    if !(2..=4).contains(&words.len()) {
        return refuse(reply::BAD_FORMAT);
    }
    let quiet = words.len() > 2 && words.quiet();
    // Old clients send a time for which the key should stay deleted; only 0 ever had a meaning.
    let zero = words.get(2) == b"0";
    let valid = match words.len() {
        2 => true,
        3 => zero || quiet,
        _ => zero && quiet,
    };
    if !valid {
        return refuse_quiet(reply::BAD_DELETE, quiet);
    }
    let key = words.get(1);
    if key.len() > KEY_MAX {
        return refuse_quiet(reply::BAD_FORMAT, quiet);
    }
    Command::Request(Request::Delete { key, quiet })
}

fn arithmetic(line: &[u8], up: bool) -> Command<'_> {
    with_number(line, reply::BAD_DELTA, token::unsigned, |key, delta, quiet| Request::Arithmetic {
        key,
        up,
        delta,
        quiet,
    })
}

fn touch(line: &[u8]) -> Command<'_> {
    with_number(line, reply::BAD_EXPTIME, token::signed, |key, exptime, quiet| Request::Touch {
        key,
        exptime,
        quiet,
    })
}

/// Parses a command with a key and a number.
fn with_number<'a, N>(
    line: &'a [u8],
    bad_number: &'static str,
    read: fn(&[u8]) -> Option<N>,
    request: impl FnOnce(&'a [u8], N, bool) -> Request<'a>,
) -> Command<'a> {
    let words = Words::new(line);
    if !(3..=4).contains(&words.len()) {
        return refuse(reply::BAD_FORMAT);
    }
    let (key, quiet) = (words.get(1), words.quiet());
    if key.len() > KEY_MAX {
        return refuse_quiet(reply::BAD_FORMAT, quiet);
    }
    match read(words.get(2)) {
        Some(number) => Command::Request(request(key, number, quiet)),
        None => refuse_quiet(bad_number, quiet),
    }
}

fn flush_all(line: &[u8]) -> Command<'_> {
    let words = Words::new(line);
    if words.len() > 3 {
        return refuse(reply::ERROR);
    }
    let quiet = words.quiet();
    let delay =
        if words.len() == 1 + usize::from(quiet) { Some(0) } else { token::signed(words.get(1)) };
    match delay {
        Some(delay) => Command::Request(Request::FlushAll { delay, quiet }),
        None => refuse_quiet(reply::BAD_EXPTIME, quiet),
    }
}

fn shutdown(line: &[u8]) -> Command<'_> {
    let words = Words::new(line);
    // Both words drain: there is no use for an abrupt end.
    let known = matches!((words.len(), words.get(1)), (1, _) | (2, b"graceful"));
    Command::Request(Request::Shutdown { known })
}

fn verbosity(line: &[u8]) -> Command<'_> {
    let words = Words::new(line);
    if !(2..=3).contains(&words.len()) {
        return refuse(reply::ERROR);
    }
    let quiet = words.quiet();
    match token::flags(words.get(1)) {
        Some(_) => Command::Request(Request::Verbosity { quiet }),
        None => refuse_quiet(reply::BAD_FORMAT, quiet),
    }
}
