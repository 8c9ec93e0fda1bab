//! What clients of both ports have to pass, from files that are replaced while the server runs:
//! users, the page's token, the certificate and its key. And what a bank has to be shown.

use std::path::Path;
use std::sync::Arc;

use submeter_cache::{Cache, Users};
use submeter_http::Token;
use submeter_terminal::Failure;

use super::files::Now;
use super::fleet::{Declaring, Member};
use super::reload::in_flags;
use crate::cli::{ServeArgs, ServiceArgs};
use crate::secrets;

/// How both ports are encrypted, if they are.
#[cfg(feature = "tls")]
pub(super) type Tls = crate::tls::Served;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = std::convert::Infallible;

/// Handles of what the files had, by which the server is given what they have now.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) users: Option<Users>,
    pub(super) token: Option<Token>,
    pub(super) tls: Option<Tls>,
    /// A bank that has certificates of files.
    bank: Option<Arc<Declaring>>,
}

impl Keys {
    /// Reads the files that flags name.
    pub(super) fn read(args: &ServeArgs, cache: &Cache, now: &Now) -> Result<Keys, Failure> {
        let (auth, token) = (args.auth_file.as_deref(), args.token_file.as_deref());
        let read = || auth.map(|path| users(path, cache)).transpose();
        let users = now.reading("--auth-file", auth, read)?;
        let certificate = args.tls_cert.as_deref();
        let tls = now.reading("--tls-cert, --tls-key", certificate, || tls(args))?;
        let read = || token.map(secrets::token).transpose();
        let token = now.reading("--token-file", token, read)?;
        Ok(Keys { users, token, tls, bank: None })
    }

    /// With the bank that a member of a fleet asks, if files say whom it trusts and who it is.
    pub(super) fn with_bank(self, args: &ServeArgs, member: Option<&Member>) -> Keys {
        let ServiceArgs { bank_ca, bank_cert, .. } = &args.member.service;
        let has_files = bank_ca.is_some() || bank_cert.is_some();
        Keys { bank: member.filter(|_| has_files).map(Member::asked), ..self }
    }

    /// Returns whether there is no such file.
    pub(super) fn is_empty(&self) -> bool {
        let Keys { users, token, tls, bank } = self;
        users.is_none() && token.is_none() && tls.is_none() && bank.is_none()
    }

    /// Reads each file again; what it says holds for connections from now on. Returns what to say
    /// of each: a bad one changes nothing.
    pub(super) fn read_again(
        &self,
        args: &ServeArgs,
        cache: &Cache,
    ) -> Vec<Result<String, String>> {
        let mut said = Vec::new();
        let mut note = |what: &str, stays: &str, read: Result<String, Failure>| {
            let told = |failure: Failure| format!("{stays}: {}", failure.line());
            said.push(read.map(|how| format!("{what}read again{how}")).map_err(told));
        };
        if let Some((old, path)) = self.users.as_ref().zip(args.auth_file.as_deref()) {
            let read = users(path, cache).map(|new| {
                old.replace(&new);
                format!(", {} of them", new.len())
            });
            note("users   ", "the users stay as they were", read);
        }
        if let Some((old, path)) = self.token.as_ref().zip(args.token_file.as_deref()) {
            let read = secrets::token(path).map(|new| {
                old.replace(&new);
                String::new()
            });
            note("token   ", "the token stays as it was", read);
        }
        #[cfg(feature = "tls")]
        if let Some(served) = &self.tls
            && let Some((certificate, key)) = args.tls_cert.as_deref().zip(args.tls_key.as_deref())
        {
            let read = served.replace(certificate, key).map(|()| String::new());
            note("tls     ", "the certificate and its key stay as they were", read);
        }
        if let Some(bank) = &self.bank {
            let read = bank.read_again(args).map(|()| String::new());
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

/// Reads certificate and key, if TLS is asked for.
fn tls(args: &ServeArgs) -> Result<Option<Tls>, Failure> {
    let Some((certificate, key)) = args.tls_cert.as_deref().zip(args.tls_key.as_deref()) else {
        return Ok(None);
    };
    #[cfg(feature = "tls")]
    return Tls::read(certificate, key).map(Some);
    #[cfg(not(feature = "tls"))]
    Err(Failure::new(format_args!(
        "cannot encrypt with {} and {}: {}",
        certificate.display(),
        key.display(),
        crate::cli::NO_TLS
    )))
}
