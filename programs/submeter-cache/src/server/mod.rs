//! The network: accepts connections and serves each in a task of its own.

mod buffers;
mod connection;
mod sweeper;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cache::Cache;

/// A TCP server of a [`Cache`] for any client of memcached's text protocol.
///
/// # Examples
/// ```
/// use submeter_cache::{Cache, Config, Server};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let cache = Cache::new(Config::default())?;
/// let server = Server::bind(([127, 0, 0, 1], 0).into(), cache).await?;
/// println!("listening on {}", server.local_addr());
/// server.run(std::future::ready(())).await?; // Stops at once: usually this is Ctrl-C.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    local_addr: SocketAddr,
    cache: Cache,
}

/// How many connections may wait to be accepted. With the usual 128, some clients of a burst, such
/// as a fleet that reconnects, wait a second and more before they try again. The system may allow
/// less (`net.core.somaxconn`).
pub(crate) const BACKLOG: u32 = 4096;

/// How long requests that run at shutdown may take to finish.
const GRACE: Duration = Duration::from_secs(2);

/// How long the server accepts nothing after the system ran out of a resource, most often
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Server {
    /// Listens on `addr`; port 0 takes any that is free.
    ///
    /// # Errors
    /// When the server cannot listen on the address, most often because its port is in use.
    pub async fn bind(addr: SocketAddr, cache: Cache) -> io::Result<Server> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server must not wait for the connections of the one before to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let local_addr = listener.local_addr()?;
        Ok(Server { listener, local_addr, cache })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until `shutdown` resolves; then stops accepting, lets running requests finish for at
    /// most two seconds, and returns.
    ///
    /// # Errors
    /// None at present: an error on a connection ends that connection alone.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        connections.spawn(sweeper::sweep(self.cache.clone(), stopped.clone()));
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, self.cache.clone(), stopped.clone()));
                    }
                    // The client may be gone already, or descriptors are short: no reason to stop
                    // serving others.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.listener);
        // Fails only when no connection is left.
        let _ = stop.send(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(GRACE, all).await.is_err() {
            connections.shutdown().await;
        }
        Ok(())
    }
}

async fn serve(stream: TcpStream, cache: Cache, stopped: watch::Receiver<bool>) {
    let _guard = cache.statistics().connections.open();
    connection::serve(stream, cache.clone(), stopped).await;
}
