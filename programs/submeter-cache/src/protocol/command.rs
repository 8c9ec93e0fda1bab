//! The command that either protocol parses from a line.

use super::{Refusal, Request, token};

/// The largest number that counts as a length: memcached's own bound, 2^31 less 3.
pub(super) const LENGTH_MAX: i64 = i32::MAX as i64 - 2;

/// A parsed command line.
pub(super) enum Command<'a> {
    Request(Request<'a>),
    Refused(Refusal<'a>),
    /// A line of another protocol.
    Foreign,
    /// A refusal, followed by this many bytes of a useless value.
    RefusedValue(Refusal<'a>, u64),
    /// A store whose value follows; it is filled in once it has arrived.
    Value(Request<'a>, usize),
}

pub(super) fn refuse<'a>(reply: &'static str) -> Command<'a> {
    Command::Refused(Refusal::new(reply))
}

/// Reads the length of a value.
pub(super) fn length(word: &[u8]) -> Option<usize> {
    let length = token::signed(word).filter(|length| (0..=LENGTH_MAX).contains(length))?;
    usize::try_from(length).ok()
}
