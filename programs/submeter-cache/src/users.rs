//! Who may use a server, and which tenants.

use std::collections::HashMap;
use std::fmt;

use subtle::ConstantTimeEq;

use crate::config::{Config, ConfigError};
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
pub struct Users {
    by_name: HashMap<Vec<u8>, User>,
}

struct User {
    password: Vec<u8>,
    access: Access,
}

impl Users {
    /// Reads lines of `USER:PASSWORD`, memcached's own format, or `USER:PASSWORD /TENANT`. A user
    /// without a tenant is confined to `/USER`; that of `/` may do everything. Empty lines and
    /// those that begin with `#` are skipped.
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
        Ok(Users { by_name })
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there is none, which [`parse`](Users::parse) refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns what the keys of those begin with who are confined to a tenant.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.by_name.values().filter_map(|user| match &user.access {
            Access::Within(prefix) => Some(&**prefix),
            _ => None,
        })
    }

    /// Returns the access of the user that `login` names, or nothing if there is no such user.
    pub(crate) fn admit(&self, login: &[u8]) -> Option<Access> {
        let space = memchr::memchr(b' ', login)?;
        let (name, password) = (&login[..space], &login[space + 1..]);
        let user = self.by_name.get(name)?;
        bool::from(user.password.ct_eq(password)).then(|| user.access.clone())
    }
}

impl User {
    fn parse<'a>(line: &'a str, config: &Config) -> Result<(&'a str, User), String> {
        let mut words = line.split_whitespace();
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
        Ok((name, User { password: password.as_bytes().to_vec(), access }))
    }
}

impl fmt::Debug for Users {
    /// Without the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("len", &self.len()).finish_non_exhaustive()
    }
}
