//! memcached's text protocol: bytes in, requests out, no I/O.
//!
//! The parser looks at a buffer and returns what is at its front; it owns no bytes and allocates
//! only for keys in base64. It returns a storage request once the buffer holds the whole value, so
//! that the value is copied once, from there into its item.
//!
//! | Command | Form | Answers |
//! |---|---|---|
//! | `get` `gets` | `get <key>+` | `VALUE <key> <flags> <bytes> [<cas>]`, data, …, `END` |
//! | `gat` `gats` | `gat <exptime> <key>+` | as `get` |
//! | `set` `add` `replace` | `set <key> <flags> <t> <bytes> [noreply]` | `STORED`, `NOT_STORED` |
//! | `append` `prepend` | as `set` | as `set` |
//! | `cas` | as `set`, with `<cas>` after `<bytes>` | `STORED`, `EXISTS`, `NOT_FOUND` |
//! | `delete` | `delete <key> [0] [noreply]` | `DELETED`, `NOT_FOUND` |
//! | `incr` `decr` | `incr <key> <delta> [noreply]` | the number, `NOT_FOUND` |
//! | `touch` | `touch <key> <exptime> [noreply]` | `TOUCHED`, `NOT_FOUND` |
//! | `mg` | `mg <key> b c C f h k l O q s t u v E N R T` | `VA`, `HD`, `EN`; flags `W X Z` |
//! | `ms` | `ms <key> <bytes> b c C E F I k O q s T M N`, data | `HD`, `NS`, `EX`, `NF` |
//! | `md` | `md <key> b C E I k O q T x` | `HD`, `NF`, `EX` |
//! | `ma` | `ma <key> b C E N J D T M O q t c v k` | `HD`, `VA`, `NF`, `NS`, `EX` |
//! | `me` | `me <key> [b]` | `ME <key> <name>=<value>…`, `EN` |
//! | `mn` | | `MN` |
//! | `flush_all` | `flush_all [delay] [noreply]` | `OK` |
//! | `verbosity` | `verbosity <level> [noreply]` | `OK` |
//! | `stats` | `stats [<what>]` | `STAT <name> <value>`…, `END` |
//! | `version` `quit` | | `VERSION …`; the end of the connection |
//! | `shutdown` | `shutdown [graceful]` | the end of the server, where it is enabled |
//!
//! On a server with users the first request stores `user password` under any key. A user of one
//! tenant may then use that tenant's keys, but neither `flush_all`, `stats` nor `shutdown`.
//!
//! The value's bytes follow the line of a storage command. `stats` knows:
//!
//! | `stats …` | Here |
//! |---|---|
//! | | memcached's names: zero for what does not exist here; `cmd_set` counts refused stores too |
//! | `reset` | makes these begin at zero again; the tenants' metrics stay as they are |
//! | `settings` | the same, and `delimiter`, `depth_max`, `tenants_max`, `metering` |
//! | `items` `slabs` | all items are of class 1; a chunk is an item, of its own size |
//! | `sizes` | `sizes_status disabled`, as memcached answers unless told to count sizes |
//! | `cachedump` | refused: it would show every tenant's keys to anyone |
//! | `conns` | servers as number 0, connections: `conn_read` waits for a request, `conn_nread` |
//! | | for its rest, `conn_mwrite` for the client; `secs_since_last_cmd` says for how long |
//! | `detail` `on` `off` `dump` | requests by tenant below the root, with descendants, while on |
//! | `tenants` | numbers of every tenant; `:other` is for keys without a tenant of their own |
//!
//! # Differences from memcached 1.6.18
//! - A NUL in a command line is an error; in memcached it ends the line.
//! - A line with too few words is answered with `CLIENT_ERROR bad command line format`, and the
//!   value of a malformed store is skipped if its length can be read, as in 1.6.40 and later. Older
//!   releases answer `ERROR` and parse the value as commands. Too many words are an error here,
//!   where later releases ignore them.
//! - Numbers that do not fit (flags beyond 32 bits, lengths beyond 31) are errors; in memcached
//!   they wrap. Expiry times have 64 bits.
//! - A retrieval's line has at most 1 MiB; in memcached it is unbounded. Beyond that, or beyond
//!   2048 bytes of another line, the connection ends without an answer, as in memcached.
//! - A hundred malformed requests in a row end the connection; in memcached they do not.
//! - A line of HTTP ends the connection, `Host:` included; in memcached only a request line does.
//!   So does a request that begins as TLS or the binary protocol do.
//! - A value of exactly the largest size fits; in memcached the item's header counts towards it.
//! - Expiry is exact to the millisecond; in memcached seconds begin when its clock ticks.
//! - `ma` with `T` gives the new item that time also when the number grew; in memcached it is lost.
//! - An append that finds no memory says so; in memcached it answers `NOT_STORED`.
//! - `E`, `C` in `mg`, `N` and `s` in `ms`, and `x` in `md` came with later versions.
//! - The binary protocol, UDP, `watch`, `lru_crawler`, `slabs` and `cache_memlimit` are omitted.

mod access;
mod classic;
mod command;
mod meta;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod outcomes;
mod parser;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use std::borrow::Cow;

pub(crate) use access::Access;
pub(crate) use meta::{Meta, Verb};
pub(crate) use parser::{Outcome, Parser, Step};

/// Maximum length of a key, in bytes.
pub(crate) const KEY_MAX: usize = 250;

/// Maximum length of a line other than a retrieval of many keys: memcached's own bound.
pub(crate) const LINE_MAX: usize = 2048;

/// Maximum length of a retrieval's line: thousands of the longest keys. memcached has no bound, so
/// that a client that never ends its line can take any amount of memory.
pub(crate) const KEYS_LINE_MAX: usize = 1 << 20;

/// The error answers, without line ends.
pub(crate) mod reply {
    pub(crate) const ERROR: &str = "ERROR";
    pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
    pub(crate) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
    pub(crate) const BAD_DELETE: &str =
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
    pub(crate) const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
    pub(crate) const TOO_MANY_ERRORS: &str = "CLIENT_ERROR too many malformed requests";
    pub(crate) const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
    pub(crate) const LOGGED_IN: &str = "STORED";
    pub(crate) const LOGIN_FAILED: &str = "CLIENT_ERROR authentication failure";
    pub(crate) const TOO_MANY_OF_USER: &str = "SERVER_ERROR too many connections for this user";
    pub(crate) const NOT_YOURS: &str = "CLIENT_ERROR key belongs to another tenant";
    pub(crate) const NOT_ALLOWED: &str = "CLIENT_ERROR not allowed for users of one tenant";
    pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
    pub(crate) const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
    pub(crate) const NO_MEMORY_GRANTED: &str = "SERVER_ERROR no memory is granted for now";
    pub(crate) const NOT_NUMERIC: &str =
        "CLIENT_ERROR cannot increment or decrement non-numeric value";
    pub(crate) const BAD_DETAIL: &str = "CLIENT_ERROR usage: stats detail on|off|dump";
    pub(crate) const NO_FLUSH: &str = "CLIENT_ERROR flush_all not allowed";
    pub(crate) const NO_DUMP: &str = "CLIENT_ERROR stats cachedump not allowed";
    pub(crate) const NO_SHUTDOWN: &str = "SERVER_ERROR: shutdown not enabled";
    pub(crate) const BAD_SHUTDOWN: &str = "CLIENT_ERROR invalid shutdown mode";
}

/// The way in which a value is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// Only over the item that has this `cas`.
    Cas,
}

/// One request, with times as the client wrote them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Get {
        with_cas: bool,
        touch: Option<i64>,
        /// The offset of the keys in the request's bytes.
        keys_at: usize,
        /// The keys, separated by spaces; each is of legal length.
        keys: &'a [u8],
    },
    Store {
        mode: Mode,
        key: &'a [u8],
        flags: u32,
        exptime: i64,
        cas: u64,
        value: &'a [u8],
        quiet: bool,
    },
    Delete {
        key: &'a [u8],
        quiet: bool,
    },
    Arithmetic {
        key: &'a [u8],
        up: bool,
        delta: u64,
        quiet: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i64,
        quiet: bool,
    },
    Meta(Meta<'a>),
    Noop,
    FlushAll {
        delay: i64,
        quiet: bool,
    },
    Verbosity {
        quiet: bool,
    },
    Version,
    Stats {
        topic: &'a [u8],
        /// The word after the topic.
        rest: &'a [u8],
    },
    Shutdown {
        /// Whether the client named an existing way to shut down, or none.
        known: bool,
    },
    Quit,
}

/// A request that is answered with an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal<'a> {
    pub(crate) reply: &'static str,
    pub(crate) quiet: bool,
    /// The key of a store whose value was refused, if it was a store.
    pub(crate) store: Option<Cow<'a, [u8]>>,
    /// Whether to drop the item under that key: the client meant to replace it, and would otherwise
    /// read what it believes overwritten.
    pub(crate) purge: bool,
}

impl<'a> Refusal<'a> {
    pub(crate) fn new(reply: &'static str) -> Refusal<'a> {
        Refusal { reply, quiet: false, store: None, purge: false }
    }

    pub(crate) fn quiet_if(mut self, quiet: bool) -> Refusal<'a> {
        self.quiet = quiet;
        self
    }
}
