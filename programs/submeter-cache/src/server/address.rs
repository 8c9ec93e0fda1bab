//! The address that a server listens on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on: a port, or a socket in the file system.
///
/// # Examples
/// ```
/// use submeter_cache::Address;
///
/// let port: Address = "127.0.0.1:11211".parse()?;
/// let file: Address = "unix:/run/submeter/cache.sock".parse()?;
/// assert!(port.tcp().is_some_and(|addr| addr.ip().is_loopback()) && file.tcp().is_none());
/// assert_eq!(file.to_string(), "unix:/run/submeter/cache.sock");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A port; 0 takes any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix {
        /// Its path. An abandoned socket, on which no process listens, is replaced.
        path: PathBuf,
        /// Its permissions. A user who may write to it may connect.
        mode: u32,
    },
}

impl Address {
    /// The permissions of a socket that [`parse`](str::parse) returns: its owner's alone, as in
    /// memcached.
    pub const UNIX_MODE: u32 = 0o700;

    /// Writes the address as memcached's `stats conns` does.
    pub(super) fn labelled(&self) -> String {
        match self {
            Address::Tcp(addr) if addr.is_ipv4() => format!("tcp:{addr}"),
            Address::Tcp(addr) => format!("tcp6:{addr}"),
            Address::Unix { .. } => self.to_string(),
        }
    }

    /// Returns the port's address, if it is one.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(addr) => Some(*addr),
            Address::Unix { .. } => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Address {
        Address::Tcp(addr)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(format!("{text:?} has no path: use unix:/PATH"));
            }
            return Ok(Address::Unix { path: path.into(), mode: Address::UNIX_MODE });
        }
        let addr = text.parse::<SocketAddr>();
        addr.map(Address::Tcp).map_err(|_| {
            format!(
                "{text:?} is not an address: use IP:PORT, such as 127.0.0.1:11211, or unix:/PATH"
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => addr.fmt(f),
            Address::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}
