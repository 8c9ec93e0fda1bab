//! The node of a cluster that has a fleet's keys.

use parking_lot::Mutex;
use redis::{Client, ConnectionAddr, RedisError};

/// The node that has the keys, as another node has reported, if the URL names a different one.
#[derive(Default)]
pub(super) struct Moved(Mutex<Option<(String, u16)>>);

impl Moved {
    /// Learns from an error where the keys are, and returns whether the error says so.
    pub(super) fn learn(&self, error: &RedisError) -> bool {
        // The other redirection is for a slot in migration, whose keys are soon all at one node.
        let Some((to, _)) = error.redirect_node().filter(|_| error.code() == Some("MOVED")) else {
            return false;
        };
        let Some((host, port)) = to.rsplit_once(':') else { return false };
        let Ok(port) = port.parse() else { return false };
        *self.0.lock() = Some((host.to_owned(), port));
        true
    }

    /// Forgets that node, so that the node of the URL is asked again.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Returns a client of that node, with everything else as in the URL's.
    pub(super) fn client(&self, client: &Client) -> Result<Client, RedisError> {
        let Some((to, port)) = self.0.lock().clone() else { return Ok(client.clone()) };
        let info = client.get_connection_info().clone();
        // A node that does not know its own address omits it.
        let host = |known: String| if to.is_empty() { known } else { to.clone() };
        let addr = match info.addr().clone() {
            ConnectionAddr::Tcp(known, _) => ConnectionAddr::Tcp(host(known), port),
            ConnectionAddr::TcpTls { host: known, insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host(known), port, insecure, tls_params }
            }
            // A UNIX socket never leads to a cluster.
            other => other,
        };
        Client::open(info.set_addr(addr))
    }
}
