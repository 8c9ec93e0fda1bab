//! The network face: accepts connections and serves each in a task of its own.

mod buffers;
mod connection;
mod output;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::cache::Cache;
use crate::store::Store;

pub(crate) use output::Output;

/// Serves a [`Cache`] over TCP to any client of memcached's text protocol.
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

/// How many connections may wait to be accepted. With the usual 128 a burst of clients, such as a
/// fleet that reconnects, has some of them wait a second and more before they try again. The system
/// may allow less (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// How long requests that run at shutdown may take to finish.
const GRACE: Duration = Duration::from_secs(2);

/// How long nothing is accepted after the system ran out of something, most often descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long it takes until every expired item was found, if nobody asked for it before.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

impl Server {
    /// Listens on `addr`; port 0 takes any that is free.
    ///
    /// # Errors
    /// When the address cannot be listened on, most often because its port is in use.
    pub async fn bind(addr: SocketAddr, cache: Cache) -> io::Result<Server> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server must not wait for the connections of the one before to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let local_addr = listener.local_addr()?;
        Ok(Server { listener, local_addr, cache })
    }

    /// Returns the address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until `shutdown` resolves; then accepts nothing more, lets running requests finish for
    /// at most two seconds, and returns.
    ///
    /// # Errors
    /// None at present: what goes wrong with one connection ends that connection.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut sweep = interval(SWEEP_PERIOD / Store::SWEEP_ROUNDS as u32);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0;
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, self.cache.clone(), stopped.clone()));
                    }
                    // The client may be gone already, or descriptors are short: others must not
                    // suffer, so this is no reason to end.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => {
                    let store = self.cache.store();
                    let now = store.clock.now();
                    store.flush_if_due(now);
                    store.sweep(round, now);
                    round += 1;
                }
            }
        }
        drop(self.listener);
        // Fails only when there is no connection left to tell.
        let _ = stop.send(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(GRACE, all).await.is_err() {
            connections.shutdown().await;
        }
        Ok(())
    }
}

async fn serve(stream: TcpStream, cache: Cache, stopped: watch::Receiver<bool>) {
    let _guard = cache.connections().open();
    connection::serve(stream, cache.clone(), stopped).await;
}

/// Counts the connections of a cache.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    current: AtomicU64,
    total: AtomicU64,
}

/// Counts one connection for as long as it lives, however its task ends.
struct Open<'a>(&'a Connections);

impl Connections {
    fn open(&self) -> Open<'_> {
        // Relaxed: statistics, all of them here.
        self.current.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    pub(crate) fn current(&self) -> u64 {
        // Relaxed: a statistic.
        self.current.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        // Relaxed: a statistic.
        self.total.load(Ordering::Relaxed)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.0.current.fetch_sub(1, Ordering::Relaxed);
    }
}
