//! Why etcd did not answer, or refused.

use std::error::Error;
use std::fmt;

use crate::unanswered::remedy;

/// The error of a bank kept by etcd. Its text contains no password.
#[derive(Debug)]
pub struct EtcdError {
    server: String,
    cause: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    /// It was not reached.
    Http(Box<ureq::Error>),
    /// It answered, but did not do it.
    Answer(String),
    /// It no longer knows the token that stands for user and password.
    Token,
    Refused(String),
}

impl From<ureq::Error> for Cause {
    fn from(error: ureq::Error) -> Self {
        Cause::Http(Box::new(error))
    }
}

impl EtcdError {
    pub(super) fn new(server: &str, cause: Cause) -> Self {
        Self { server: server.to_owned(), cause }
    }

    /// Returns whether the request, or a setting, was refused: repeating it is useless.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused(_))
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.cause {
            Cause::Http(error) => {
                let is_timeout = matches!(**error, ureq::Error::Timeout(_));
                write!(f, "cannot ask {server}: {}", remedy(is_timeout, &error.to_string()))
            }
            Cause::Answer(why) => write!(f, "the request to {server} failed: {why}"),
            Cause::Token => write!(f, "{server} no longer accepts this login: try again"),
            Cause::Refused(why) => write!(f, "{server}: {why}"),
        }
    }
}

impl Error for EtcdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Http(error) => Some(&**error),
            Cause::Answer(_) | Cause::Token | Cause::Refused(_) => None,
        }
    }
}
