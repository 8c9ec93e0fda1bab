//! Access to the cache: where it listens, for whom, and the warnings about unprotected ports.

use std::io;
use std::net::SocketAddr;

use submeter_cache::{Address, Config, Server, Users};
use submeter_terminal::Failure;

use crate::cli::ServeArgs;
use crate::secrets;

/// Returns the cache's address, with the permissions of a socket.
pub(super) fn address(args: &ServeArgs) -> Address {
    match args.listen.clone() {
        Address::Unix { path, .. } => Address::Unix { path, mode: args.unix_mode },
        address => address,
    }
}

/// Reads the users, if there is a file of them.
pub(super) fn users(args: &ServeArgs, config: &Config) -> Result<Option<Users>, Failure> {
    let Some(path) = &args.auth_file else { return Ok(None) };
    let text = secrets::read("--auth-file", path)?;
    let users = Users::parse(&text, config)
        .map_err(|error| Failure::new(format_args!("{}, {error} (--auth-file)", path.display())))?;
    Ok(Some(users))
}

/// How both ports are encrypted, if they are.
#[cfg(feature = "tls")]
pub(super) type Tls = std::sync::Arc<tokio_rustls::rustls::ServerConfig>;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = std::convert::Infallible;

/// Reads certificate and key, if TLS is asked for.
pub(super) fn tls(args: &ServeArgs) -> Result<Option<Tls>, Failure> {
    let Some((certificate, key)) = args.tls_cert.as_deref().zip(args.tls_key.as_deref()) else {
        return Ok(None);
    };
    #[cfg(feature = "tls")]
    return crate::tls::server(certificate, key).map(Some);
    #[cfg(not(feature = "tls"))]
    Err(Failure::new(format_args!(
        "cannot encrypt with {} and {}: {}",
        certificate.display(),
        key.display(),
        crate::cli::NO_TLS
    )))
}

/// Gives the server what clients have to pass.
pub(super) fn guard(server: Server, users: Option<Users>, tls: Option<&Tls>) -> Server {
    let server = match users {
        Some(users) => server.users(users),
        None => server,
    };
    match tls {
        None => server,
        #[cfg(feature = "tls")]
        Some(config) => server.tls(config.clone()),
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    }
}

/// Says why the cache cannot listen, and what to do.
pub(super) fn cannot_listen(address: &Address, error: &io::Error) -> Failure {
    match address.tcp() {
        Some(addr) => super::cannot_listen("--listen", addr, error),
        None => {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "another server listens there".to_owned(),
                _ => error.to_string(),
            };
            Failure::new(format_args!(
                "cannot listen on {address}: {why}; --listen unix:/PATH names a file that may be \
                 made"
            ))
        }
    }
}

/// Says in one line what other machines may do, if anything.
pub(super) fn warning(
    cache: &Address,
    has_users: bool,
    page: SocketAddr,
    has_token: bool,
) -> Option<String> {
    let mut risks = Vec::new();
    let reached = |addr: &SocketAddr| !addr.ip().to_canonical().is_loopback();
    if let Some(addr) = cache.tcp().filter(reached)
        && !has_users
    {
        risks.push(format!(
            "anybody who reaches {addr} may read, change and delete all items (--auth-file names \
             who may)"
        ));
    }
    if reached(&page) && !has_token {
        risks.push(format!(
            "anybody who reaches {page} may read all tenants' figures and delete tenants \
             (--token-file asks for a token)"
        ));
    }
    if risks.is_empty() {
        return None;
    }
    Some(format!("{}; by default only this machine is served", risks.join(", and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(cache: &str, has_users: bool, page: &str, has_token: bool) -> Option<String> {
        let cache = cache.parse().expect("an address");
        warning(&cache, has_users, page.parse().expect("an address"), has_token)
    }

    #[test]
    fn only_doors_that_are_open_to_other_machines_are_warned_of() {
        let home = "127.0.0.1:1";
        for cache in [home, "[::1]:1", "127.3.2.1:1", "[::ffff:127.0.0.1]:1", "unix:/tmp/x"] {
            assert_eq!(warned(cache, false, home, false), None, "{cache}");
        }
        assert_eq!(warned("0.0.0.0:1", true, "[::]:2", true), None);
        let cache = warned("0.0.0.0:1", false, home, false).expect("a warning");
        assert!(cache.contains("0.0.0.0:1") && cache.contains("--auth-file"), "{cache}");
        assert!(!cache.contains("--token-file"), "{cache}");
        let page = warned("0.0.0.0:1", true, "192.0.2.1:2", false).expect("a warning");
        assert!(page.contains("192.0.2.1:2") && page.contains("--token-file"), "{page}");
        assert!(!page.contains("--auth-file"), "{page}");
        let both = warned("[::]:1", false, "[::]:2", false).expect("a warning");
        assert!(both.contains("--auth-file") && both.contains("--token-file"), "{both}");
        assert_eq!(both.lines().count(), 1);
    }
}
