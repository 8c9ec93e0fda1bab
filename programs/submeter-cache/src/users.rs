//! The users of a server, and the tenants that each may use.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::config::{Config, ConfigError};
use crate::connections::{Place, Unwelcome};
use crate::protocol::Access;

/// Maximum length of name and password together, including the space between them: the amount that
/// an unidentified client may make the server hold.
pub(crate) const LOGIN_MAX: usize = 512;

/// The users of a server, each confined to a tenant.
///
/// A client identifies itself with its first request, as with memcached's own text protocol: it
/// stores `user password` under any key. Until then no other request is executed. Passwords are
/// compared in constant time; they cross the network unencrypted.
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
/// Cloning copies a handle, through which they can be [replaced](Users::replace).
#[derive(Clone)]
pub struct Users {
    current: Arc<watch::Sender<Arc<ByName>>>,
}

/// Users by login name.
pub(crate) type ByName = HashMap<Vec<u8>, User>;

/// One user.
pub(crate) struct User {
    name: Arc<str>,
    password: Vec<u8>,
    access: Access,
}

impl Users {
    /// Reads lines of `USER:PASSWORD`, memcached's own format, or `USER:PASSWORD /TENANT`. A user
    /// without a tenant is confined to `/USER`; a user of `/` may do everything. Empty lines are
    /// skipped, as is everything after a `#` at the beginning of a line or after a blank.
    ///
    /// # Errors
    /// A line in another format, a user who is named twice, an impossible tenant, or no user at
    /// all; the error names the line and the remedy, and never a password.
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
                return Err(wrong(&format!("user {name:?} is listed twice: keep one")));
            }
        }
        if by_name.is_empty() {
            return Err(ConfigError::new("no users: add lines like \"acme:password\"".to_owned()));
        }
        Ok(Users { current: Arc::new(watch::Sender::new(Arc::new(by_name))) })
    }

    /// Lets `others` log in from now on, in place of the current users, at each server that has a
    /// clone of this handle. Connections stay, except those of a user who no longer exists or has
    /// another tenant, which end. A new password ends none, so that it can be handed out before it
    /// is used.
    pub fn replace(&self, others: &Users) {
        let others = Arc::clone(&others.current.borrow());
        self.current.send_replace(others);
    }

    /// Returns the number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.borrow().len()
    }

    /// Returns whether there are no users, which [`parse`](Users::parse) refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current.borrow().is_empty()
    }

    /// Gives the place to the user whom `login` names, if there is one. No user is replaced in the
    /// meantime: a connection that has a place is found by the task that ends replaced ones.
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

    /// Returns a receiver that changes when they are replaced.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<ByName>> {
        self.current.subscribe()
    }
}

/// Returns the key prefixes of the users who are confined to a tenant.
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
        // No password contains a blank, and no tenant begins like this.
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let login = words.next().unwrap_or_default();
        let tenant = words.next();
        let form = "use USER:PASSWORD or USER:PASSWORD /TENANT, without other spaces";
        let Some((name, password)) = login.split_once(':') else {
            return Err(format!("no ':' between user and password: {form}"));
        };
        if name.is_empty() || password.is_empty() {
            return Err(format!("empty user or password: {form}"));
        }
        if words.next().is_some() || tenant.is_some_and(|tenant| !tenant.starts_with('/')) {
            return Err(format!("unexpected text after the password of user {name:?}: {form}"));
        }
        if login.len() > LOGIN_MAX {
            return Err(format!(
                "user and password are {} bytes long: the maximum is {LOGIN_MAX}",
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
    /// Shows the users without the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("len", &self.len()).finish_non_exhaustive()
    }
}
