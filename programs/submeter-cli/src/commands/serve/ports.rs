//! Access to the cache: where it listens, for whom, and the warnings about unprotected ports.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

use submeter_cache::{Address, Cache, Server, Users};
use submeter_http::Endpoint;
use submeter_terminal::Failure;
use tokio::net::TcpListener;

use super::keys::Tls;
use super::threads::no_threads;

/// Where both ports listen.
pub(super) struct Plan {
    pub(super) listen: Address,
    pub(super) http: SocketAddr,
    /// Number of threads that serve the cache's requests; by default one per processor.
    pub(super) threads: Option<NonZero<usize>>,
}

impl Plan {
    pub(super) fn threads(&self) -> NonZero<usize> {
        let cpus = || std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        self.threads.unwrap_or_else(cpus)
    }
}

/// Opens the cache's port and starts the threads that serve it, then opens the page's.
pub(super) async fn open(
    plan: &Plan,
    cache: &Cache,
) -> Result<(Server, (TcpListener, SocketAddr)), Failure> {
    let Plan { listen, http, .. } = plan;
    let server = Server::listen(listen, cache.clone()).await;
    let server = server.map_err(|error| cannot_listen(listen, &error))?;
    let server = server.threads(plan.threads()).map_err(|e| no_threads(&e))?;
    let not_bound = |error| cannot_bind("--http", *http, &error);
    let page = TcpListener::bind(*http).await.map_err(not_bound)?;
    let page_at = page.local_addr().map_err(not_bound)?;
    Ok((server, (page, page_at)))
}

/// Gives the server what clients have to present.
pub(super) fn guard(server: Server, users: Option<Users>, tls: Option<&Tls>) -> Server {
    let server = match users {
        Some(users) => server.users(users),
        None => server,
    };
    match tls {
        None => server,
        #[cfg(feature = "tls")]
        Some(served) => server.tls(served.config()),
        #[cfg(not(feature = "tls"))]
        Some(never) => match *never {},
    }
}

/// Returns the endpoint for clients of the page.
pub(super) fn page(listener: TcpListener, tls: Option<Tls>, grace: Duration) -> Endpoint {
    let door = Endpoint::from(listener).grace(grace);
    match tls {
        None => door,
        #[cfg(feature = "tls")]
        Some(served) => door.tls(served.config()),
        #[cfg(not(feature = "tls"))]
        Some(never) => match never {},
    }
}

/// Refuses to let other machines set limits.
pub(super) fn check_limits_api(limits_api: bool, http: SocketAddr) -> Result<(), Failure> {
    if limits_api && !http.ip().to_canonical().is_loopback() {
        return Err(Failure::new(format_args!(
            "--limits-api lets clients of {http} set limits, but other machines can reach it: use \
             a loopback address for --http, such as 127.0.0.1:9411"
        )));
    }
    Ok(())
}

/// Says why the cache cannot listen, and what to do.
fn cannot_listen(address: &Address, error: &io::Error) -> Failure {
    match address.tcp() {
        Some(addr) => cannot_bind("--listen", addr, error),
        None => {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "another server is listening there".to_owned(),
                _ => error.to_string(),
            };
            Failure::new(format_args!(
                "cannot listen on {address}: {why}; use a path for --listen unix:/PATH where a \
                 socket can be created"
            ))
        }
    }
}

fn cannot_bind(flag: &str, addr: SocketAddr, error: &io::Error) -> Failure {
    let free = SocketAddr::new(addr.ip(), 0);
    let another = || format!("use another port ({flag} {free} picks a free one)");
    let (why, remedy) = match error.kind() {
        io::ErrorKind::AddrInUse => ("the port is in use".to_owned(), another()),
        io::ErrorKind::PermissionDenied => (error.to_string(), another()),
        io::ErrorKind::AddrNotAvailable => (
            "it is no address of this machine".to_owned(),
            format!("use one that is, such as {flag} 127.0.0.1:{}", addr.port()),
        ),
        _ => (error.to_string(), format!("use another address for {flag}")),
    };
    Failure::new(format_args!("cannot listen on {addr}: {why}; {remedy}"))
}

/// A port that other machines may reach.
#[derive(Clone, Copy)]
pub(super) struct Port {
    /// The address; `None` for a socket of the file system.
    pub(super) addr: Option<SocketAddr>,
    /// Whether clients must show a password or a token.
    pub(super) is_guarded: bool,
}

impl Port {
    /// Returns the address if other machines can reach it.
    fn reached(self) -> Option<SocketAddr> {
        self.addr.filter(|addr| !addr.ip().to_canonical().is_loopback())
    }
}

/// Returns in one line what other machines may do, if anything.
pub(super) fn warning(cache: Port, page: Port, is_encrypted: bool) -> Option<String> {
    let mut risks = Vec::new();
    if let Some(addr) = cache.reached() {
        if !cache.is_guarded {
            risks.push(format!(
                "anybody who can reach {addr} may read, change and delete all items (--auth-file \
                 restricts access to named users)"
            ));
        } else if !is_encrypted {
            risks.push(format!(
                "anybody on the network path to {addr} may read passwords and items, which are not \
                 encrypted (--tls-cert and --tls-key, in a build with the feature tls, encrypt \
                 them)"
            ));
        }
    }
    if let Some(addr) = page.reached() {
        if !page.is_guarded {
            risks.push(format!(
                "anybody who can reach {addr} may read all tenants' figures and delete tenants \
                 (--token-file requires a token)"
            ));
        } else if !is_encrypted {
            risks.push(format!(
                "anybody on the network path to {addr} may read the token, which is not encrypted \
                 (--tls-cert and --tls-key, in a build with the feature tls, encrypt it)"
            ));
        }
    }
    if risks.is_empty() {
        return None;
    }
    Some(format!("{}; by default only this machine is served", risks.join(", and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(addr: &str, is_guarded: bool) -> Port {
        let address: Address = addr.parse().expect("an address");
        Port { addr: address.tcp(), is_guarded }
    }

    const HOME: &str = "127.0.0.1:1";

    /// The remedy is not the fault.
    #[test]
    fn a_remedy_is_a_port_that_can_be_had() {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable};
        let addr = "192.0.2.1:0".parse().expect("an address");
        let said = |kind: io::ErrorKind| cannot_bind("--listen", addr, &kind.into());
        let foreign = said(AddrNotAvailable);
        assert!(!foreign.line().contains("--listen 192"), "{}", foreign.line());
        assert!(foreign.line().contains("--listen 127.0.0.1:0"), "{}", foreign.line());
        assert!(said(AddrInUse).line().contains("--listen 192.0.2.1:0 picks a free one"));
    }

    /// Only doors that are open to other machines cause a warning.
    #[test]
    fn only_ports_open_to_others_are_warned_of() {
        let page = port(HOME, false);
        for cache in [HOME, "[::1]:1", "127.3.2.1:1", "[::ffff:127.0.0.1]:1", "unix:/tmp/x"] {
            assert_eq!(warning(port(cache, false), page, false), None, "{cache}");
            assert_eq!(warning(port(cache, true), page, false), None, "{cache}");
        }
        let other = ["0.0.0.0:1", "[::]:2"];
        assert_eq!(warning(port(other[0], true), port(other[1], true), true), None);
        let cache = warning(port(other[0], false), page, true).expect("a warning");
        assert!(cache.contains("0.0.0.0:1") && cache.contains("--auth-file"), "{cache}");
        assert!(!cache.contains("--token-file"), "{cache}");
        let guarded = port(other[0], true);
        let page = warning(guarded, port("192.0.2.1:2", false), true).expect("a warning");
        assert!(page.contains("192.0.2.1:2") && page.contains("--token-file"), "{page}");
        assert!(!page.contains("--auth-file"), "{page}");
        let both = warning(port(other[1], false), port(other[1], false), false).expect("a warning");
        assert!(both.contains("--auth-file") && both.contains("--token-file"), "{both}");
        assert!(!both.contains("--tls-cert"), "nothing is secret yet: {both}");
        assert_eq!(both.lines().count(), 1);
    }

    #[test]
    fn secrets_sent_in_the_clear_are_warned_of() {
        let (home, cache, page) = (port(HOME, true), "192.0.2.1:1", "192.0.2.1:2");
        let passwords = warning(port(cache, true), home, false).expect("a warning");
        assert!(passwords.contains(cache) && passwords.contains("passwords"), "{passwords}");
        assert!(passwords.contains("--tls-cert") && !passwords.contains("token"), "{passwords}");
        let token = warning(home, port(page, true), false).expect("a warning");
        assert!(token.contains(page) && token.contains("token"), "{token}");
        assert!(token.contains("--tls-cert") && !token.contains("passwords"), "{token}");
        let both = warning(port(cache, true), port(page, true), false).expect("a warning");
        assert!(both.contains(cache) && both.contains(page), "{both}");
        assert_eq!(both.lines().count(), 1);
    }
}
