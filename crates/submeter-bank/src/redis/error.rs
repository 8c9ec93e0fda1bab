//! Why Redis did not answer, or refused.

use std::error::Error;
use std::fmt;

use crate::unanswered::remedy;

/// The error of a bank kept by Redis. Its text contains no password.
#[derive(Debug)]
pub struct RedisError {
    server: String,
    cause: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    /// The remedy, and the client's text.
    Redis(&'static str, redis::RedisError),
    /// It has no replicas that have its writes, or fewer than asked for.
    Alone {
        have: u64,
        replicas: u64,
    },
    /// It does not accept the user or the password, or does not permit the user enough.
    Denied(redis::RedisError),
    Refused(String),
}

/// Classifies Redis' answer, if there was one.
impl From<redis::RedisError> for Cause {
    fn from(error: redis::RedisError) -> Cause {
        let denied = ["NOAUTH", "NOPERM", "WRONGPASS"];
        if error.kind() == redis::ErrorKind::AuthenticationFailed
            || error.code().is_some_and(|code| denied.contains(&code))
        {
            return Cause::Denied(error);
        }
        let remedy = match error.code() {
            Some("OOM") => "it is out of memory: raise its maxmemory",
            Some("MISCONF") => "it cannot write to its disk: see its log",
            Some("LOADING") => "it is still loading its data: wait for it",
            Some("READONLY") => "it is a replica: use the primary",
            Some(_) => "it answered with an error",
            None => remedy(error.is_timeout(), &error.to_string()),
        };
        Cause::Redis(remedy, error)
    }
}

impl RedisError {
    pub(super) fn new(server: &str, cause: Cause) -> Self {
        Self { server: server.to_owned(), cause }
    }

    /// Returns whether the request, or a setting, was refused: repeating it is useless.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Denied(_) | Cause::Refused(_))
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Redis(what, _) => write!(f, "cannot ask {}: {what}", self.server),
            Cause::Alone { have, replicas } => write!(
                f,
                "{}: {have} of {replicas} replicas have the exchange: check whether another server \
                 is now the primary, or start them",
                self.server
            ),
            Cause::Denied(_) => write!(
                f,
                "{} denied access: check the user and password in the URL, and the user's ACL",
                self.server
            ),
            Cause::Refused(why) => write!(f, "{}: {why}", self.server),
        }
    }
}

impl Error for RedisError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Redis(_, error) | Cause::Denied(error) => Some(error),
            Cause::Alone { .. } | Cause::Refused(_) => None,
        }
    }
}
