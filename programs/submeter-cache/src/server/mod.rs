//! The network: accepts connections and serves each in its own task.

mod address;
mod arrival;
mod buffers;
pub(crate) mod connection;
mod listener;
mod stream;
mod sweeper;
#[cfg(feature = "tls")]
mod tls;
mod workers;

pub(crate) use buffers::BUFFER_BYTES;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cache::Cache;
use crate::connections::{self, Ends};
use crate::users::{ByName, Users};

pub use address::Address;
use listener::Listener;
use stream::Stream;
use workers::{Worker, Workers};

/// A server of a [`Cache`] for any client of memcached's text protocol.
///
/// # Examples
/// ```
/// use submeter_cache::{Cache, Config, Server};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let cache = Cache::new(Config::default())?;
/// let server = Server::bind(([127, 0, 0, 1], 0).into(), cache).await?;
/// let server = server
///     .threads(std::thread::available_parallelism()?)?
///     .on_shortage(|error| eprintln!("no further clients: {error}"))
///     .on_foreign(|client| eprintln!("{client}"));
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
    users: Option<Users>,
    on_shortage: Option<Hook<io::Error>>,
    on_foreign: Option<Hook<Foreign>>,
    workers: Option<Workers>,
    #[cfg(feature = "tls")]
    tls: Option<tls::Acceptor>,
}

/// A callback of the user's.
struct Hook<T>(Arc<dyn Fn(&T) + Send + Sync>);

impl<T> Clone for Hook<T> {
    fn clone(&self) -> Hook<T> {
        Hook(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// A client whose connection ended because it speaks another protocol: see
/// [`Server::on_foreign`]. Displays as a line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// `HTTP`, `TLS` or `memcached's binary protocol`.
    pub protocol: &'static str,
    /// The client's address, as `stats conns` shows it.
    pub client: String,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a client at {} speaks {}", self.client, self.protocol)
    }
}

/// Number of connections that may wait to be accepted. With the usual 128, some clients of a burst,
/// such as a reconnecting fleet, wait a second and more before they retry. The system may allow
/// less (`net.core.somaxconn`).
pub(crate) const BACKLOG: u32 = 4096;

/// How long the server accepts nothing after the system ran out of a resource, usually descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Server {
    /// Listens on a port; 0 takes any that is free.
    ///
    /// # Errors
    /// When the server cannot listen on it, usually because it is in use.
    pub async fn bind(addr: SocketAddr, cache: Cache) -> io::Result<Server> {
        Server::listen(&addr.into(), cache).await
    }

    /// Listens on an address. The file of a socket is removed when the server ends.
    ///
    /// # Errors
    /// When the server cannot listen on it: a port in use, or a file that exists already.
    pub async fn listen(address: &Address, cache: Cache) -> io::Result<Server> {
        let (listener, address) = Listener::bind(address)?;
        Ok(Server {
            listener,
            address,
            cache,
            users: None,
            on_shortage: None,
            on_foreign: None,
            workers: None,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Executes requests only for these users, each on its own tenant. The tenant exists from now
    /// on and always has a place if [there are enough](Cache::check_users). Without users, anyone
    /// who reaches the server may do everything. A clone of the handle [replaces](Users::replace)
    /// them while the server runs.
    #[must_use]
    pub fn users(mut self, users: Users) -> Server {
        self.cache.tenants().set_users(&users.subscribe().borrow());
        self.users = Some(users);
        self
    }

    /// Serves connections on this many threads of its own. A connection belongs to the thread that
    /// has the fewest when the client connects, for as long as it is open. Without this,
    /// connections are tasks of the runtime that [`run`](Server::run) is called on. With a thread
    /// per CPU the server answers more requests per second, and the slowest answers come sooner.
    ///
    /// # Errors
    /// When the system refuses a thread, or a descriptor for it to wait on.
    pub fn threads(mut self, threads: NonZero<usize>) -> io::Result<Server> {
        self.workers = Some(Workers::start(threads)?);
        Ok(self)
    }

    /// Calls `hook` whenever the server stops accepting for a moment because the system has no room
    /// for another connection; usually descriptors are short. The server continues to serve its
    /// existing connections, and retries twenty times a second; `listen_disabled_num` of `stats`
    /// counts these events. The hook runs on a serving thread, and must neither block nor panic.
    #[must_use]
    pub fn on_shortage(mut self, hook: impl Fn(&io::Error) + Send + Sync + 'static) -> Server {
        self.on_shortage = Some(Hook(Arc::new(hook)));
        self
    }

    /// Calls `hook` with each client whose connection ended because it speaks another protocol. The
    /// hook runs on a serving thread, and must neither block nor panic; such a client often returns
    /// at once.
    #[must_use]
    pub fn on_foreign(mut self, hook: impl Fn(&Foreign) + Send + Sync + 'static) -> Server {
        self.on_foreign = Some(Hook(Arc::new(hook)));
        self
    }

    /// Speaks TLS on a port; a socket in the file system has permissions instead. A client that
    /// does not agree on keys within [`login_timeout`](crate::Config::login_timeout) is closed.
    /// Each connection may hold 64 KiB for records in transit, even while it is idle, in addition
    /// to what [`buffers_max`](crate::Config::buffers_max) counts.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: Arc<tokio_rustls::rustls::ServerConfig>) -> Server {
        self.tls = Some(tls::Acceptor::new(config));
        self
    }

    /// Returns the address that the server listens on, with the actual port if any free one was
    /// requested.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until `shutdown` resolves. Then it stops accepting, lets requests in flight finish
    /// for at most [`Config::drain`](crate::Config::drain), and returns. In flight is what has
    /// arrived, in whole or in part, and every answer that has not been sent yet.
    ///
    /// # Errors
    /// Returns none at present: an error on a connection ends that connection alone.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let workers = self.workers.take().unwrap_or_else(Workers::here);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(sweeper::sweep(self.cache.clone(), stopped.clone()));
        if let Some(users) = &self.users {
            tasks.spawn(follow(users.subscribe(), self.cache.clone(), stopped.clone()));
        }
        let label: Arc<str> = self.address.labelled().into();
        let listening = self.cache.connections().listen(connections::Listener {
            address: Arc::clone(&label),
            threads: workers.threads(),
            has_users: self.users.is_some(),
            speaks_tls: self.speaks_tls(),
        });
        tokio::pin!(shutdown);
        let mut is_short = false;
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (accepted, worker) = self.accept(&workers) => match accepted {
                    Ok(stream) => {
                        is_short = false;
                        self.admit(stream, worker, &label, &mut tasks, &stopped);
                    }
                    // The client is gone already.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // This is no reason to stop serving others. Without a pause it would spin.
                    Err(error) => {
                        if !std::mem::replace(&mut is_short, true) {
                            self.note_shortage(&error);
                        }
                        self.cache.connections().note_pause(ACCEPT_PAUSE);
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        let drain = self.cache.config().drain;
        drop(self.listener);
        drop(listening);
        // This fails only when no connection is left.
        let _ = stop.send(true);
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(drain, all).await.is_err() {
            tasks.shutdown().await;
        }
        Ok(())
    }

    /// Accepts a connection, and chooses the worker that serves it.
    async fn accept<'w>(&self, workers: &'w Workers) -> (io::Result<Stream>, &'w Worker) {
        poll_fn(|context| {
            let worker = workers.least_busy();
            // The worker's runtime is the one to be notified of arrivals.
            let _entered = worker.runtime().enter();
            self.listener.poll_accept(context).map(|accepted| (accepted, worker))
        })
        .await
    }

    fn speaks_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    fn note_shortage(&self, error: &io::Error) {
        self.cache.connections().note_stop();
        if let Some(Hook(hook)) = &self.on_shortage {
            hook(error);
        }
    }

    /// Serves a client in its own task, or turns it away.
    fn admit(
        &self,
        stream: Stream,
        worker: &Worker,
        label: &Arc<str>,
        tasks: &mut JoinSet<()>,
        stopped: &watch::Receiver<bool>,
    ) {
        let now_ms = self.cache.store().clock.now().ms;
        let is_stranger = self.users.is_some() || self.speaks_tls();
        let Some(place) = self.cache.connections().take_place(now_ms, is_stranger) else {
            return turn_away(stream);
        };
        let seat = Arc::clone(&place.seat);
        seat.set_ends(Ends { client: stream.client(), server: Arc::clone(label) });
        let (cache, users) = (self.cache.clone(), self.users.clone());
        let on_foreign = self.on_foreign.clone();
        let stopped = stopped.clone();
        let busy = worker.busy();
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        let served = async move {
            let _busy = busy;
            #[cfg(feature = "tls")]
            let stream = match (stream, tls) {
                // A client that agrees on no keys gets no answer: it could not read one.
                (Stream::Tcp(stream), Some(tls)) => match tls.accept(stream).await {
                    Ok(stream) => Stream::Tls(stream),
                    Err(_) => return,
                },
                (stream, _) => stream,
            };
            if users.is_none() {
                place.admit();
            }
            connection::serve(stream, cache, users, place, on_foreign, stopped).await;
        };
        seat.set_task(tasks.spawn_on(served, worker.runtime()));
    }
}

/// Ends the connections of replaced users, until the server stops.
async fn follow(
    mut users: watch::Receiver<Arc<ByName>>,
    cache: Cache,
    mut stopped: watch::Receiver<bool>,
) {
    // At least once: they may have been replaced before this began to watch.
    users.mark_changed();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            changed = users.changed() => if changed.is_err() {
                return;
            },
        }
        let now = Arc::clone(&users.borrow_and_update());
        cache.tenants().set_users(&now);
        cache.connections().end_users(&now);
    }
}

/// Tells a superfluous client so, in memcached's words, without waiting for it: the socket's buffer
/// is empty and takes the line. Waiting in `accept` instead, as memcached can, would leave the
/// client without an answer for as long as others stay.
fn turn_away(mut stream: Stream) {
    // A client that has left misses nothing.
    let _ = stream.try_write_vectored(&[IoSlice::new(b"ERROR Too many open connections\r\n")]);
    // Reads the bytes that the client has sent: unread, they would make the kernel discard the
    // line.
    let mut unread = Vec::with_capacity(4096);
    let read = pin!(stream.read_buf(&mut unread));
    let _ = read.poll(&mut Context::from_waker(Waker::noop()));
}
