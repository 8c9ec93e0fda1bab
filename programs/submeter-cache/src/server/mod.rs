//! The network: accepts connections and serves each in a task of its own.

mod address;
mod buffers;
mod connection;
mod stream;
mod sweeper;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cache::Cache;
use crate::users::Users;

pub use address::Address;
use address::Listener;
use stream::Stream;

/// A server of a [`Cache`] for any client of memcached's text protocol.
///
/// # Examples
/// ```
/// use submeter_cache::{Cache, Config, Server};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let cache = Cache::new(Config::default())?;
/// let server = Server::bind(([127, 0, 0, 1], 0).into(), cache).await?;
/// println!("listening on {}", server.address());
/// server.run(std::future::ready(())).await?; // Stops at once: usually this is Ctrl-C.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: Address,
    cache: Cache,
    users: Option<Arc<Users>>,
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
    /// Listens on a port; 0 takes any that is free.
    ///
    /// # Errors
    /// When the server cannot listen on it, most often because it is in use.
    pub async fn bind(addr: SocketAddr, cache: Cache) -> io::Result<Server> {
        Server::listen(&addr.into(), cache).await
    }

    /// Listens on an address. The file of a socket is removed when the server ends.
    ///
    /// # Errors
    /// When the server cannot listen on it: a port in use, a file that is there already.
    pub async fn listen(address: &Address, cache: Cache) -> io::Result<Server> {
        let (listener, address) = Listener::bind(address)?;
        Ok(Server { listener, address, cache, users: None })
    }

    /// Executes requests only for these users, each on its own tenant. Without them anybody who
    /// reaches the server may do everything.
    #[must_use]
    pub fn users(mut self, users: Users) -> Server {
        self.users = Some(Arc::new(users));
        self
    }

    /// Returns the address that the server listens on: with the port that it was given, if it left
    /// the choice.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
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
                    Ok(stream) => {
                        let users = self.users.clone();
                        connections.spawn(serve(stream, self.cache.clone(), users, stopped.clone()));
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

async fn serve(
    stream: Stream,
    cache: Cache,
    users: Option<Arc<Users>>,
    stopped: watch::Receiver<bool>,
) {
    let _guard = cache.statistics().connections.open();
    connection::serve(stream, cache.clone(), users, stopped).await;
}
