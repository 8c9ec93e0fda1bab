//! Addresses with passwords in them.

use std::convert::Infallible;
use std::fmt;

/// Where a bank or a database is: `unix:/PATH`, or `redis://…` or `etcd://…` with a password in it,
/// so that it is read by clap without an error, which would repeat it, and is never printed whole.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretAddress(String);

impl SecretAddress {
    pub(crate) fn read(text: &str) -> Result<SecretAddress, Infallible> {
        Ok(SecretAddress(text.to_owned()))
    }

    /// Names a bank at a socket of this host.
    pub(crate) fn unix(path: &std::path::Path) -> SecretAddress {
        SecretAddress(format!("unix:{}", path.display()))
    }

    /// Returns all of it, the password included.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

/// Without user, password and options.
impl fmt::Display for SecretAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            // Words such as `host=db password=…` are what databases take as well.
            let is_secret = self.0.contains(['@', '=']) && !self.0.starts_with("unix:");
            return f.write_str(if is_secret { "…" } else { &self.0 });
        };
        let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
        let place = match before.rsplit_once('@') {
            Some((_, place)) => place,
            // The `?` may be of a password that is not escaped.
            None if options.contains('@') => "…",
            None => before,
        };
        write!(f, "{scheme}://{place}")
    }
}

impl fmt::Debug for SecretAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_secrets() {
        for (text, shown) in [
            ("unix:/run/bank", "unix:/run/bank"),
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://:s3cret@h:1/0", "redis://h:1/0"),
            ("redis://me:s3@cret@h", "redis://h"),
            ("redis+unix:///run/r?pass=s3cret", "redis+unix:///run/r"),
            ("redis://:s3?cret@h", "redis://…"),
            ("etcd://me:s3cret@a:1,b:2", "etcd://a:1,b:2"),
            ("redi:s3cret@h", "…"),
            ("host=h password=s3cret", "…"),
            ("postgres://me:s3cret@h/bill?password=s3cret", "postgres://h/bill"),
        ] {
            let address = SecretAddress(text.to_owned());
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
    }
}
