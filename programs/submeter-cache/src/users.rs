//! The users of a server, and the tenants that each may use.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::config::{Config, ConfigError};
use crate::connections::{Place, Unwelcome};
use crate::protocol::Access;

/// The longest name and password together, a space between them included: what a client that has
/// not said who it is may make the server hold.
pub(crate) const LOGIN_MAX: usize = 512;

/// The users of a server, each confined to a tenant.
///
/// A client says who it is with its first request, as with memcached's own text protocol: it
/// stores `user password` under any key. Until then no other request is executed. Passwords are
/// compared in constant time; they cross the network as they are.
///
/// # Examples
/// ```
/// use submeter_cache::{Config, Users};
///
/// let users = Users::parse("acme:correct-horse\nops:battery-staple /\n", &Config::default())?;
/// assert_eq!(users.len(), 2);
/// let error = Users::parse("acme\n", &Config::default()).expect_err("no password");
/// assert!(error.to_string().contains("line 1"));
/// # Ok::<(), submeter_cache::ConfigError>(())
/// ```
///
/// Cloning copies a handle, by which they can be [replaced](Users::replace).
#[derive(Clone)]
pub struct Users {
    current: Arc<watch::Sender<Arc<ByName>>>,
}

/// Users, by what clients call them.
pub(crate) type ByName = HashMap<Vec<u8>, User>;

/// One user.
pub(crate) struct User {
    name: Arc<str>,
    password: Vec<u8>,
    access: Access,
}

impl Users {
    /// Reads lines of `USER:PASSWORD`, memcached's own format, or `USER:PASSWORD /TENANT`. A user
    /// without a tenant is confined to `/USER`; that of `/` may do everything. Empty lines are
    /// skipped, and what follows a `#` at the beginning of a line or behind a blank.
    ///
    /// # Errors
    /// A line that is none of this, a user who is named twice, a tenant that cannot be, or no user
    /// at all; the error names the line and the remedy, and never a password.
    pub fn parse(text: &str, config: &Config) -> Result<Users, ConfigError> {
        let mut by_name = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| ConfigError::new(format!("line {}: {why}", index + 1));
            let (name, user) = User::parse(line, config).map_err(|why| wrong(&why))?;
            if by_name.insert(name.as_bytes().to_vec(), user).is_some() {
                return Err(wrong(&format!("user {name:?} is there already: keep one")));
            }
        }
        if by_name.is_empty() {
            return Err(ConfigError::new("no user: write lines like \"acme:password\"".to_owned()));
        }
        Ok(Users { current: Arc::new(watch::Sender::new(Arc::new(by_name))) })
    }

    /// Lets `others` log in from now on, in place of those that could so far, at each server that
    /// has a clone of this handle. Connections stay, but for those of a user who is no longer there
    /// or has another tenant, which end. A new password ends none, so that it can be given out
    /// before it is used.
    ///
    /// # Examples
    /// ```
    /// use submeter_cache::{Config, Users};
    ///
    /// let users = Users::parse("acme:correct-horse\n", &Config::default())?;
    /// let handle = users.clone(); // The other one goes to the server.
    /// handle.replace(&Users::parse("ops:battery-staple /\n", &Config::default())?);
    /// # Ok::<(), submeter_cache::ConfigError>(())
    /// ```
    pub fn replace(&self, others: &Users) {
        let others = Arc::clone(&others.current.borrow());
        self.current.send_replace(others);
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.borrow().len()
    }

    /// Returns whether there is none, which [`parse`](Users::parse) refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current.borrow().is_empty()
    }

    /// Gives the place to the user whom `login` names, if there is one. Nobody is replaced
    /// meanwhile: who has a place is found by those who end what is replaced.
    pub(crate) fn enter(
        &self,
        login: &[u8],
        place: &Place,
    ) -> Option<(Access, Result<(), Unwelcome>)> {
        let space = memchr::memchr(b' ', login)?;
        let (name, password) = (&login[..space], &login[space + 1..]);
        let users = self.current.borrow();
        let user = users.get(name)?;
        let is_right = bool::from(user.password.ct_eq(password));
        let entered = || place.log_in(&user.name, user.access.clone(), users.len() > 1);
        is_right.then(|| (user.access.clone(), entered()))
    }

    /// Returns what changes when they are replaced.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<ByName>> {
        self.current.subscribe()
    }
}

/// Returns what the keys of those users begin with who are confined to a tenant.
pub(crate) fn prefixes(users: &ByName) -> impl Iterator<Item = &[u8]> {
    users.values().filter_map(|user| match &user.access {
        Access::Within(prefix) => Some(&**prefix),
        _ => None,
    })
}

/// Returns what a user may do, if there is one of that name.
pub(crate) fn access<'a>(users: &'a ByName, name: &str) -> Option<&'a Access> {
    users.get(name.as_bytes()).map(|user| &user.access)
}

impl User {
    fn parse<'a>(line: &'a str, config: &Config) -> Result<(&'a str, User), String> {
        // No password has a blank, and no tenant begins like this.
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let login = words.next().unwrap_or_default();
        let tenant = words.next();
        let form = "write USER:PASSWORD or USER:PASSWORD /TENANT, without further spaces";
        let Some((name, password)) = login.split_once(':') else {
            return Err(format!("no ':' between user and password: {form}"));
        };
        if name.is_empty() || password.is_empty() {
            return Err(format!("an empty user or password: {form}"));
        }
        if words.next().is_some() || tenant.is_some_and(|tenant| !tenant.starts_with('/')) {
            return Err(format!("something after the password of user {name:?}: {form}"));
        }
        if login.len() > LOGIN_MAX {
            return Err(format!(
                "user and password have {} bytes: {LOGIN_MAX} are the most",
                login.len()
            ));
        }
        let own = format!("/{name}");
        let tenant = tenant.unwrap_or(&own);
        let access = if tenant == "/" {
            Access::Everything
        } else {
            config.check_tenant(tenant).map_err(|error| format!("user {name:?}: {error}"))?;
            let delimiter = char::from(config.delimiter);
            let prefix: String =
                tenant[1..].split('/').flat_map(|name| name.chars().chain([delimiter])).collect();
            Access::Within(prefix.into_bytes().into())
        };
        let password = password.as_bytes().to_vec();
        Ok((name, User { name: name.into(), password, access }))
    }
}

impl fmt::Debug for Users {
    /// Without the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("len", &self.len()).finish_non_exhaustive()
    }
}
