//! What clients of both ports have to present, from files that are replaced while the server runs:
//! users, the page's token, the certificate and its key. Also what a bank has to be shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use submeter_cache::{Cache, Users};
use submeter_http::Token;
use submeter_terminal::Failure;

use super::fleet::Declaring;
use super::reading::{Now, Turn};
use crate::cli::in_flags;
use crate::secrets;

/// The encryption of both ports, if they are encrypted.
#[cfg(feature = "tls")]
pub(super) type Tls = crate::tls::Served;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = std::convert::Infallible;

/// The paths of the files that flags name.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) users: Option<PathBuf>,
    pub(super) token: Option<PathBuf>,
    /// A certificate and its key.
    pub(super) tls: Option<(PathBuf, PathBuf)>,
}

/// Handles of what was read, through which the server receives the current contents of the files.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) users: Option<Users>,
    pub(super) token: Option<Token>,
    pub(super) tls: Option<Tls>,
    files: Plan,
    /// A bank whose certificates come from files.
    bank: Option<Arc<Declaring>>,
}

impl Keys {
    /// Reads the files that flags name.
    pub(super) fn read(plan: &Plan, cache: &Cache, now: &Now) -> Result<Keys, Failure> {
        let (auth, token) = (plan.users.as_deref(), plan.token.as_deref());
        let read = || auth.map(|path| users(path, cache)).transpose();
        let users = now.reading("--auth-file", auth, read)?;
        let certificate = plan.tls.as_ref().map(|(certificate, _)| certificate.as_path());
        let read = || plan.tls.as_ref().map(tls).transpose();
        let tls = now.reading("--tls-cert, --tls-key", certificate, read)?;
        let read = || token.map(secrets::token).transpose();
        let token = now.reading("--token-file", token, read)?;
        Ok(Keys { users, token, tls, files: plan.clone(), bank: None })
    }

    /// Adds a bank whose certificates come from files.
    pub(super) fn with_bank(self, bank: Option<Arc<Declaring>>) -> Keys {
        Keys { bank, ..self }
    }

    /// Returns whether there is no such file.
    pub(super) fn is_empty(&self) -> bool {
        let Keys { users, token, tls, bank, .. } = self;
        users.is_none() && token.is_none() && tls.is_none() && bank.is_none()
    }

    /// Reads each file again; its content applies to connections from now on. Returns a message for
    /// each. A bad file changes nothing.
    pub(super) fn read_again(&self, cache: &Cache, turn: &Turn) -> Vec<Result<String, String>> {
        let now = &turn.now;
        let mut said = Vec::new();
        let mut note = |what: &str, stays: &str, read: Result<String, Failure>| {
            let told = |failure: Failure| format!("{stays}: {}", failure.line());
            said.push(read.map(|how| format!("{what}read again{how}")).map_err(told));
        };
        if let Some((old, path)) = self.users.as_ref().zip(self.files.users.as_deref()) {
            let read = now.reading("--auth-file", Some(path), || users(path, cache)).map(|new| {
                turn.if_latest(|| old.replace(&new));
                format!(", {} of them", new.len())
            });
            note("users   ", "the users stay as they were", read);
        }
        if let Some((old, path)) = self.token.as_ref().zip(self.files.token.as_deref()) {
            let read =
                now.reading("--token-file", Some(path), || secrets::token(path)).map(|new| {
                    turn.if_latest(|| old.replace(&new));
                    String::new()
                });
            note("token   ", "the token stays as it was", read);
        }
        #[cfg(feature = "tls")]
        if let Some((old, files)) = self.tls.as_ref().zip(self.files.tls.as_ref()) {
            let read = now.reading("--tls-cert, --tls-key", Some(&files.0), || tls(files));
            let read = read.map(|new| {
                turn.if_latest(|| old.replace(&new));
                String::new()
            });
            note("tls     ", "the certificate and its key stay as they were", read);
        }
        if let Some(bank) = &self.bank {
            let read = bank.read_again(turn).map(|()| String::new());
            note("bank    ", "the bank's certificates stay as they were", read);
        }
        said
    }
}

fn users(path: &Path, cache: &Cache) -> Result<Users, Failure> {
    let text = secrets::read("--auth-file", path)?;
    let users = Users::parse(&text, cache.config())
        .and_then(|users| cache.check_users(&users).map(|()| users));
    users.map_err(|error| {
        let error = in_flags(&error.to_string());
        Failure::new(format_args!("{}, {error} (--auth-file)", path.display()))
    })
}

/// Reads a certificate and its key.
fn tls((certificate, key): &(PathBuf, PathBuf)) -> Result<Tls, Failure> {
    #[cfg(feature = "tls")]
    return Tls::read(certificate, key);
    #[cfg(not(feature = "tls"))]
    Err(Failure::new(format_args!(
        "cannot encrypt with {} and {}: {}",
        certificate.display(),
        key.display(),
        crate::cli::NO_TLS
    )))
}
