//! The rights of a connection: none before it has logged in, and only the keys of its own tenant
//! after that.
//!
//! Access is decided on parsed lines, before anything is executed, so that no command can be
//! forgotten: what is not allowed here gets no further.

use std::sync::Arc;

use super::command::Command;
use super::{Mode, Refusal, Request, reply, token};
use crate::users::LOGIN_MAX;

/// The rights of one connection's client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Everything,
    /// The client may only identify itself.
    Login,
    /// The client may only use keys that begin like this: the names of its tenant, each with the
    /// delimiter.
    Within(Arc<[u8]>),
}

impl Access {
    /// Replaces a command that is not allowed with its refusal. A value that follows is swallowed.
    pub(super) fn restrict<'a>(&self, command: Command<'a>) -> Command<'a> {
        match self {
            Access::Everything => command,
            Access::Login => login(command),
            Access::Within(prefix) => within(command, prefix),
        }
    }
}

fn login(command: Command<'_>) -> Command<'_> {
    let refusal = || Refusal::new(reply::UNAUTHENTICATED);
    match command {
        // As in memcached, no other store is a login.
        Command::Value(Request::Store { mode: Mode::Set, .. }, len) if len <= LOGIN_MAX => command,
        Command::Value(_, len) => Command::RefusedValue(refusal(), len as u64 + 2),
        Command::RefusedValue(_, swallow) => Command::RefusedValue(refusal(), swallow),
        Command::Request(Request::Quit) | Command::Foreign => command,
        Command::Request(_) | Command::Refused(_) => Command::Refused(refusal()),
    }
}

fn within<'a>(command: Command<'a>, prefix: &[u8]) -> Command<'a> {
    let foreign = |key: &[u8]| !key.starts_with(prefix);
    match &command {
        Command::Value(request, len) => match key_of(request) {
            Some((key, quiet)) if foreign(key) => {
                let refusal = Refusal::new(reply::NOT_YOURS).quiet_if(quiet);
                Command::RefusedValue(refusal, *len as u64 + 2)
            }
            _ => command,
        },
        // Not even the current item may be dropped, nor the attempt charged to its tenant.
        Command::RefusedValue(Refusal { store: Some(key), quiet, .. }, swallow) if foreign(key) => {
            Command::RefusedValue(Refusal::new(reply::NOT_YOURS).quiet_if(*quiet), *swallow)
        }
        Command::Request(request) => match request {
            Request::Get { keys, .. } if token::words(keys).any(foreign) => {
                Command::Refused(Refusal::new(reply::NOT_YOURS))
            }
            Request::FlushAll { quiet, .. } => {
                Command::Refused(Refusal::new(reply::NOT_ALLOWED).quiet_if(*quiet))
            }
            Request::Stats { .. } | Request::Shutdown { .. } => {
                Command::Refused(Refusal::new(reply::NOT_ALLOWED))
            }
            request => match key_of(request) {
                Some((key, quiet)) if foreign(key) => {
                    Command::Refused(Refusal::new(reply::NOT_YOURS).quiet_if(quiet))
                }
                _ => command,
            },
        },
        Command::RefusedValue(..) | Command::Refused(_) | Command::Foreign => command,
    }
}

/// Returns the key of a request with one, and whether errors are to be silent.
fn key_of<'r>(request: &'r Request<'_>) -> Option<(&'r [u8], bool)> {
    match request {
        Request::Store { key, quiet, .. }
        | Request::Delete { key, quiet }
        | Request::Arithmetic { key, quiet, .. }
        | Request::Touch { key, quiet, .. } => Some((key, *quiet)),
        // A meta request's error is never silent.
        Request::Meta(meta) => Some((&meta.key, false)),
        Request::Get { .. }
        | Request::Noop
        | Request::FlushAll { .. }
        | Request::Verbosity { .. }
        | Request::Version
        | Request::Stats { .. }
        | Request::Shutdown { .. }
        | Request::Quit => None,
    }
}
