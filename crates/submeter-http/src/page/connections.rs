//! Accepts HTTP connections, bounded in number and in the time a silent or slow peer may hold one.
//!
//! `axum::serve` sets neither bound, and this port is what people expose by accident.
//!
//! A client is a *stranger* until one of its requests was admitted. It may have a free place, but
//! when none is free, a newcomer takes the place of the stranger that has waited longest. Clients
//! that are silent, slow with a request, or without the token therefore keep out no client that has
//! it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use super::pace::Paced;

/// The address that tells every client whether the server runs, even when all places are taken.
pub(super) const HEALTH: &str = "/healthz";

/// Maximum number of connections: some dozens of open pages, and all the scrapers of one program.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// For so many places, one client more is still heard when all are taken: the latest to arrive. It
/// gets an answer that says so, over HTTP or, where it is spoken, TLS. A health check is answered:
/// a server full of slow clients is healthy, and a restart would not help it.
const DOOR_PART: usize = 8;

/// How long a peer may take to send a request's head, and stay idle between two requests.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers in progress may take at shutdown, unless the program sets another time.
const GRACE: Duration = Duration::from_secs(5);

/// A listener for clients, with its settings.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_http::Endpoint;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let endpoint = Endpoint::from(port).grace(Duration::from_secs(1));
/// # let _ = endpoint;
/// # Ok(())
/// # }
/// ```
pub struct Endpoint {
    listener: TcpListener,
    grace: Duration,
    places: Places,
    on_shortage: Option<Hook>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

/// A callback of the program.
type Hook = Box<dyn Fn(&io::Error) + Send + Sync>;

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({}, {:?})", self.scheme(), self.listener)
    }
}

impl From<TcpListener> for Endpoint {
    /// Speaks plain HTTP.
    fn from(listener: TcpListener) -> Endpoint {
        Endpoint {
            listener,
            grace: GRACE,
            places: Places::new(CONNECTIONS_MAX),
            on_shortage: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Endpoint {
    /// Gives answers in progress at shutdown this much time; the default is five seconds.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Endpoint {
        Endpoint { grace, ..self }
    }

    /// Serves at most this many connections, and an eighth as many clients that are told so; the
    /// default of 256 is also the maximum. A program that is allowed few open files keeps some for
    /// others this way. To be called before [`places`](Endpoint::places).
    #[must_use]
    pub fn connections_max(self, most: usize) -> Endpoint {
        Endpoint { places: Places::new(most.clamp(1, CONNECTIONS_MAX)), ..self }
    }

    /// Returns its places, for inspection while it is served.
    #[must_use]
    pub fn places(&self) -> Places {
        self.places.clone()
    }

    /// Calls `hook` whenever the system has no room for another connection, as when the process is
    /// out of descriptors. While clients wait, it is called every 50 ms: print it once.
    #[must_use]
    pub fn on_shortage(self, hook: impl Fn(&io::Error) + Send + Sync + 'static) -> Endpoint {
        Endpoint { on_shortage: Some(Box::new(hook)), ..self }
    }

    /// Speaks TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, config: Arc<tokio_rustls::rustls::ServerConfig>) -> Endpoint {
        Endpoint { tls: Some(config.into()), ..self }
    }

    /// Returns `http`, or `https` with TLS.
    pub(super) fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return "https";
        }
        "http"
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The places that an [`Endpoint`] has for connections. A server that is nearly out of them should
/// warn before it turns clients away. Reading them costs a few loads.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let places = submeter_http::Endpoint::from(port).places();
/// assert_eq!((places.taken(), places.most(), places.refused()), (0, 256, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Places {
    most: usize,
    slots: Arc<Semaphore>,
    /// Requests that were turned away.
    refused: Arc<AtomicU64>,
}

impl Places {
    fn new(most: usize) -> Places {
        Places { most, slots: Arc::new(Semaphore::new(most)), refused: Arc::default() }
    }

    /// Returns the total number of places.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the number of places taken, including those that a newcomer would be given.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.most - self.slots.available_permits()
    }

    /// Returns the number of requests from clients that found no place.
    #[must_use]
    pub fn refused(&self) -> u64 {
        // Relaxed: a statistic.
        self.refused.load(Ordering::Relaxed)
    }
}

/// The place of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat(Arc<AtomicBool>);

impl Seat {
    /// Settles whether its client or a newcomer has the place. Returns whether that was still open.
    fn decide(&self) -> bool {
        // Relaxed: it publishes nothing else, and the swap lets exactly one of two callers come
        // first.
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Keeps the place for its client, which had a request admitted.
    pub(super) fn keep(&self) {
        self.decide();
    }
}

/// A place, held for as long as a connection has it.
type Slot = Arc<OwnedSemaphorePermit>;

/// A connection with a place, whose client may be a stranger.
struct Inside {
    seat: Seat,
    slot: Weak<OwnedSemaphorePermit>,
    task: AbortHandle,
}

/// The connections that may be ended to make room, in order of arrival.
struct Crowd {
    /// Number of places.
    most: usize,
    inside: VecDeque<Inside>,
    /// Connections without a place.
    at_the_door: VecDeque<AbortHandle>,
}

impl Crowd {
    fn let_in(&mut self, inside: Inside) {
        if self.inside.len() >= 2 * self.most {
            self.inside.retain(|inside| inside.slot.strong_count() > 0);
        }
        self.inside.push_back(inside);
    }

    fn hear(&mut self, task: AbortHandle) {
        self.at_the_door.push_back(task);
        if self.at_the_door.len() > self.most.div_ceil(DOOR_PART)
            && let Some(first) = self.at_the_door.pop_front()
        {
            first.abort();
        }
    }

    /// Ends the connection of the stranger that has waited longest, and returns its place.
    ///
    /// The place goes straight to the newcomer. If it became free first, the next arrival could
    /// take it, and the newcomer would wait until another stranger ended.
    fn displace(&mut self) -> Option<Slot> {
        while let Some(Inside { seat, slot, task }) = self.inside.pop_front() {
            if let Some(slot) = slot.upgrade()
                && seat.decide()
            {
                task.abort();
                return Some(slot);
            }
        }
        None
    }
}

/// Serves until `shutdown` resolves; `closing` must then end streams that would otherwise never
/// end. Answers that are then in progress may take as long as the endpoint allows.
pub(super) async fn serve(
    door: Endpoint,
    app: Router,
    shutdown: impl Future<Output = ()>,
    closing: impl FnOnce(),
) {
    let places = door.places.clone();
    let (slots, most) = (Arc::clone(&places.slots), places.most);
    let crowded = app.clone().layer(from_fn_with_state(places, turn_away));
    let mut crowd = Crowd { most, inside: VecDeque::new(), at_the_door: VecDeque::new() };
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            accepted = door.listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Either the process is out of descriptors, or the peer is gone already. Neither is
                // a reason to end, and the first would spin without a pause.
                Err(error) => {
                    if error.kind() != io::ErrorKind::ConnectionAborted
                        && let Some(hook) = &door.on_shortage
                    {
                        hook(&error);
                    }
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let free = Arc::clone(&slots).try_acquire_owned().ok().map(Arc::new);
        let slot = free.or_else(|| crowd.displace());
        let app = if slot.is_some() { app.clone() } else { crowded.clone() };
        let seat = Seat::default();
        let held = slot.as_ref().map(Arc::downgrade);
        let place = (slot, seat.clone());
        let connection = graceful.watcher();
        // Without it each event would wait until the one before is acknowledged. It fails only on a
        // closed socket, which the conversation will notice.
        let _ = stream.set_nodelay(true);
        #[cfg(feature = "tls")]
        let tls = door.tls.clone();
        let served = tokio::spawn(async move {
            #[cfg(feature = "tls")]
            if let Some(tls) = tls {
                // A client with which no keys are agreed could not read an answer.
                if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                    converse(stream, app, connection, place).await;
                }
                return;
            }
            converse(stream, app, connection, place).await;
        });
        let task = served.abort_handle();
        match held {
            Some(slot) => crowd.let_in(Inside { seat, slot, task }),
            None => crowd.hear(task),
        }
    }
    let grace = door.grace;
    drop(door);
    closing();
    // A peer that does not read has had its time.
    let _ = timeout(grace, graceful.shutdown()).await;
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    app: Router,
    graceful: hyper_util::server::graceful::Watcher,
    (slot, seat): (Option<Slot>, Seat),
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        let app = app.clone();
        request.extensions_mut().insert(seat.clone());
        async move { Ok::<_, Infallible>(answer(app, request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(slot.is_some())
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(Paced::new(stream)), service);
    // An error here is the peer's: it went away, or it did not speak HTTP (hyper answered 400).
    let _ = graceful.watch(connection).await;
    drop(slot);
}

async fn answer(app: Router, request: Request) -> Response {
    match app.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Tells a client that found no place why it gets nothing, unless it asks whether the server runs.
async fn turn_away(State(places): State<Places>, request: Request, next: Next) -> Response {
    if request.uri().path() == HEALTH {
        return next.run(request).await;
    }
    // Relaxed: a statistic.
    places.refused.fetch_add(1, Ordering::Relaxed);
    let why = format!("{} connections are open, the maximum: try again later\n", places.most);
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], why).into_response()
}
