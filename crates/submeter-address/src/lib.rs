//! Addresses of servers with passwords in them.
//!
//! An [`Address`] is any text that says where a server is. It is printed without anything that may
//! be secret, even if the text is no valid address, so that an error may name it. [`Address::url`]
//! parses it by RFC 3986: user and password are percent-decoded, whatever the protocol.
//!
//! ```
//! use submeter_address::Address;
//!
//! let address = Address::new("http://bank:p%40ss@localhost:9411/base?key=s3cret");
//! assert_eq!(address.to_string(), "http://localhost:9411/base");
//!
//! let url = address.url()?;
//! assert_eq!(url.credentials(), Some(("bank", "p@ss")));
//! assert_eq!(url.join("/tree").target(), "http://localhost:9411/base/tree?key=s3cret");
//! # Ok::<(), submeter_address::AddressError>(())
//! ```
//!
//! # When not to use it
//! It resolves nothing, compares nothing, and does not follow the web's rules: to interpret a text
//! as browsers do, use the crate `url`, which brings the tables of Unicode's names.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{CONTROLS, percent_decode_str, utf8_percent_encode};

/// The address of a server as a person wrote it, printed without user, password, query and
/// fragment.
///
/// # Examples
/// ```
/// use submeter_address::Address;
///
/// let address = Address::new("redis://:s3cret@h:6379/0");
/// assert_eq!(format!("{address} {address:?}"), "redis://h:6379/0 redis://h:6379/0");
/// assert_eq!(address.secret(), "redis://:s3cret@h:6379/0");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

/// The parts of an [`Address`] that is a URL. It is printed as the address is.
///
/// # Examples
/// ```
/// use submeter_address::Address;
///
/// let url = Address::new("etcds://me:p%3Ass@a:2379,b:2379").url()?;
/// assert_eq!((url.scheme(), url.authority()), ("etcds", "a:2379,b:2379"));
/// assert_eq!(url.credentials(), Some(("me", "p:ss")));
/// # Ok::<(), submeter_address::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    user: Option<(String, String)>,
    authority: String,
    path: String,
    query: Option<String>,
}

/// Why a text cannot be parsed. It reveals nothing of the text, which may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not begin with a scheme and `://`.
    Scheme,
    /// It has white space or a control character.
    Space,
    /// A percent sign, in its user or password, is not followed by two hexadecimal digits.
    Escape,
    /// The escapes in its user or password do not decode to UTF-8.
    Text,
}

impl Address {
    /// Takes any text, ignoring white space around it.
    #[must_use]
    pub fn new(text: &str) -> Address {
        Address(text.trim().to_owned())
    }

    /// Returns the whole text, including the password.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Parses it, without the fragment, which is for readers of an answer and is never sent.
    ///
    /// # Errors
    /// When it has no scheme, has white space, or has an invalid escape in its user or password.
    pub fn url(&self) -> Result<Url, AddressError> {
        let (scheme, user, authority, rest) = self.split().ok_or(AddressError::Scheme)?;
        if !is_scheme(scheme) {
            return Err(AddressError::Scheme);
        }
        if self.0.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(AddressError::Space);
        }
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            Ok((decode(name)?, decode(password)?))
        });
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        Ok(Url {
            scheme: scheme.to_ascii_lowercase(),
            user: user.transpose()?,
            authority: authority.to_owned(),
            path: path.to_owned(),
            query,
        })
    }

    /// Returns the scheme, user and password, the authority without them, and the rest.
    fn split(&self) -> Option<(&str, Option<&str>, &str, &str)> {
        let (scheme, rest) = self.0.split_once("://")?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // An `@` in a password need not be escaped: no host has one.
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        Some((scheme, user, authority, rest))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Accepts any text, for command-line parsers, whose errors would repeat it.
impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Address, Infallible> {
        Ok(Address::new(text))
    }
}

/// Writes it without anything that is, or may be, secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.split().filter(|(scheme, ..)| is_scheme(scheme));
        let Some((scheme, _, authority, rest)) = parts else {
            // Databases also accept words such as `host=db password=…`.
            let is_secret = self.0.contains(['@', '=', '?']) && !self.0.starts_with("unix:");
            return f.write_str(if is_secret { "…" } else { &self.0 });
        };
        // Whatever ended the authority may be part of a password that is not escaped.
        if rest.contains('@') {
            return write!(f, "{scheme}://…");
        }
        let path = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
        write!(f, "{scheme}://{authority}{path}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Url {
    /// Returns the scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns user and password, decoded; the password is empty if there is none.
    #[must_use]
    pub fn credentials(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(name, password)| (&**name, &**password))
    }

    /// Returns the value of HTTP's `Authorization`, if there is a user.
    ///
    /// # Examples
    /// ```
    /// use submeter_address::Address;
    ///
    /// let url = Address::new("http://Aladdin:open%20sesame@h").url()?;
    /// assert_eq!(url.authorization().as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    /// # Ok::<(), submeter_address::AddressError>(())
    /// ```
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        let (name, password) = self.credentials()?;
        Some(format!("Basic {}", BASE64.encode(format!("{name}:{password}"))))
    }

    /// Returns host and port, or several of them, as written.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the hosts with their ports: one, or several separated by commas. `None` if any host
    /// is not a name or an address, or its port not a number. Addresses keep their brackets.
    ///
    /// # Examples
    /// ```
    /// use submeter_address::Address;
    ///
    /// let url = Address::new("etcd://a:2379,[::1]:2380").url()?;
    /// assert_eq!(url.hosts(), Some(vec![("a", Some(2379)), ("[::1]", Some(2380))]));
    /// assert_eq!(Address::new("http://h:port").url()?.hosts(), None);
    /// # Ok::<(), submeter_address::AddressError>(())
    /// ```
    #[must_use]
    pub fn hosts(&self) -> Option<Vec<(&str, Option<u16>)>> {
        self.authority.split(',').map(host).collect()
    }

    /// Returns the path, which is empty or begins with a slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what follows the question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns whether it names only a server: no path but `/`, and no query.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        ["", "/"].contains(&self.path()) && self.query.is_none()
    }

    /// Returns the URL of `path` below this path. `path` begins with a slash, or is empty to leave
    /// no slash at the end. The query stays.
    #[must_use]
    pub fn join(mut self, path: &str) -> Url {
        self.path.truncate(self.path.trim_end_matches('/').len());
        self.path.push_str(path);
        self
    }

    /// Returns the URL to request: all of it except user and password. Characters that are not
    /// ASCII are escaped in path and query, as requests require. It must not be printed, because a
    /// query may have a key.
    #[must_use]
    pub fn target(&self) -> String {
        let (mark, query) = self.query.as_deref().map_or(("", ""), |query| ("?", query));
        // There are no control characters, so only those that are not ASCII are escaped.
        let [path, query] = [self.path(), query].map(|part| utf8_percent_encode(part, CONTROLS));
        format!("{}://{}{path}{mark}{query}", self.scheme, self.authority)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = Address(format!("{}://{}{}", self.scheme, self.authority, self.path));
        secret.fmt(f)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads `host`, `host:port`, `[address]` or `[address]:port`.
fn host(text: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match text.rfind([':', ']']) {
        Some(at) if text[at..].starts_with(':') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    let of = |bytes: &str, marks: &[u8]| {
        let is_one = |byte: u8| byte.is_ascii_alphanumeric() || marks.contains(&byte);
        !bytes.is_empty() && bytes.bytes().all(is_one)
    };
    let is_host = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => of(address, b":.%-_"),
        None => of(name, b"-._"),
    };
    let port = match port {
        // Rust's parser also accepts a sign.
        Some(port) => Some(port.parse().ok().filter(|_| of(port, b""))?),
        None => None,
    };
    is_host.then_some((name, port))
}

/// Decodes percent escapes strictly: other clients disagree on malformed ones.
///
/// # Examples
/// ```
/// assert_eq!(submeter_address::decode("a%2Cb+c").as_deref(), Ok("a,b+c"));
/// assert!(submeter_address::decode("100%").is_err());
/// ```
///
/// # Errors
/// When a percent sign is not followed by two hexadecimal digits, or the result is not UTF-8.
pub fn decode(text: &str) -> Result<String, AddressError> {
    let digits = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(digits) {
        return Err(AddressError::Escape);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| AddressError::Text)?;
    Ok(decoded.into_owned())
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Scheme => "not a URL: begin with a scheme, as in http://",
            AddressError::Space => "it contains white space: write %20 for a space",
            AddressError::Escape => "invalid percent escape: write %25 for a literal %",
            AddressError::Text => "percent escapes are not valid UTF-8",
        })
    }
}

impl Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<Url, AddressError> {
        Address::new(text).url()
    }

    #[test]
    fn an_address_is_shown_without_secrets() {
        for (text, shown) in [
            ("unix:/run/bank", "unix:/run/bank"),
            ("unix:/run/a=b@c", "unix:/run/a=b@c"),
            ("127.0.0.1:9411", "127.0.0.1:9411"),
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://:s3cret@h:1/0", "redis://h:1/0"),
            ("redis://me:s3@cret@h", "redis://h"),
            ("redis+unix:///run/r?pass=s3cret", "redis+unix:///run/r"),
            ("redis://:s3?cret@h", "redis://…"),
            ("redis://:s3/cret@h", "redis://…"),
            ("redis://:s3#cret@h", "redis://…"),
            ("redis://:s3@cr/et@h", "redis://…"),
            ("etcd://me:s3cret@a:1,b:2", "etcd://a:1,b:2"),
            ("redi:s3cret@h", "…"),
            ("me:s3cret@h:9411", "…"),
            ("h:9411?token=s3cret", "…"),
            ("host=h password=s3cret", "…"),
            ("host=h password=s3cret application_name=http://bill", "…"),
            ("me:s3://cret@h:1", "…"),
            ("postgres://me:s3cret@h/bill?password=s3cret", "postgres://h/bill"),
            ("https://collector/v1#s3cret", "https://collector/v1"),
        ] {
            let address = Address::new(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            if let Ok(url) = address.url() {
                assert!(!format!("{url} {url:?}").contains("cret"), "{text}");
            }
        }
    }

    #[test]
    fn user_and_password_are_decoded() {
        for (text, user) in [
            ("http://h", None),
            ("http://h/a@b", None),
            ("http://bank:p%40ss@h", Some(("bank", "p@ss"))),
            ("http://%62ank:%2f%3F%23%25%3a@h", Some(("bank", "/?#%:"))),
            ("http://me:a:b@h", Some(("me", "a:b"))),
            ("http://me:a@b@h", Some(("me", "a@b"))),
            ("http://me:a+b@h", Some(("me", "a+b"))),
            ("http://me:%C3%BC@h", Some(("me", "ü"))),
            ("http://me@h", Some(("me", ""))),
            ("http://:p@h", Some(("", "p"))),
        ] {
            let url = url(text).expect(text);
            assert_eq!(url.credentials(), user, "{text}");
            assert_eq!(url.authority(), "h", "{text}");
        }
        for (text, error) in [
            ("http://me:100%@h", AddressError::Escape),
            ("http://me:%4@h", AddressError::Escape),
            ("http://me:%zz@h", AddressError::Escape),
            ("http://m%+1e:x@h", AddressError::Escape),
            ("http://me:%ff@h", AddressError::Text),
            ("http://a b", AddressError::Space),
            ("http://a\nb", AddressError::Space),
            ("h:9411", AddressError::Scheme),
            ("://h", AddressError::Scheme),
            ("a b://h", AddressError::Scheme),
            ("1a://h", AddressError::Scheme),
            ("", AddressError::Scheme),
        ] {
            assert_eq!(url(text), Err(error), "{text}");
        }
    }

    #[test]
    fn hosts_have_names_and_numbers() {
        for (authority, hosts) in [
            ("h", Some(vec![("h", None)])),
            ("a_b.c-d:1,1.2.3.4", Some(vec![("a_b.c-d", Some(1)), ("1.2.3.4", None)])),
            ("[::1]", Some(vec![("[::1]", None)])),
            ("[fe80::1%25eth0]:65535", Some(vec![("[fe80::1%25eth0]", Some(65535))])),
        ] {
            assert_eq!(url(&format!("s://{authority}")).expect("a URL").hosts(), hosts);
        }
        let none =
            ["", ":1", "h:", "h:x", "h:+1", "h:65536", "::1", "[]:1", "[::1", "a b", "a,", "ü"];
        for authority in none {
            let url = url(&format!("s://{authority}"));
            assert!(url.is_err() || url.is_ok_and(|url| url.hosts().is_none()), "{authority}");
        }
    }

    #[test]
    fn a_path_is_appended_to_the_path() {
        for (base, joined) in [
            ("http://h:1", "http://h:1/v1/metrics"),
            ("HTTP://h:1/", "http://h:1/v1/metrics"),
            ("http://h//", "http://h/v1/metrics"),
            ("http://h/base", "http://h/base/v1/metrics"),
            ("http://h/base/?token=a/b", "http://h/base/v1/metrics?token=a/b"),
            ("http://h?token=a", "http://h/v1/metrics?token=a"),
            ("http://h/?", "http://h/v1/metrics?"),
            ("http://h/base#part", "http://h/base/v1/metrics"),
            ("http://h/base?a=b#c?d", "http://h/base/v1/metrics?a=b"),
            ("http://h/ä%20b?k=ü%2f", "http://h/%C3%A4%20b/v1/metrics?k=%C3%BC%2f"),
            ("http://me:p%40ss@[::1]:1/base", "http://[::1]:1/base/v1/metrics"),
        ] {
            assert_eq!(url(base).expect(base).join("/v1/metrics").target(), joined, "{base}");
        }
    }
}
