//! Accepts HTTP connections, bounded in number and in the time a silent or slow peer may hold one.
//!
//! `axum::serve` sets neither bound, and this port is what people expose by accident.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use super::pace::Paced;

/// The most connections at once: some dozens of open pages and every scraper one has.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// How long a peer may take to send a request's head, and be idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers that are under way may take at the end, unless the program says otherwise.
const GRACE: Duration = Duration::from_secs(5);

/// Where clients come in.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter_http::Door;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let door = Door::from(port).grace(Duration::from_secs(1));
/// # let _ = door;
/// # Ok(())
/// # }
/// ```
pub struct Door {
    listener: TcpListener,
    grace: Duration,
    on_shortage: Option<Hook>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

/// A function of the program's.
type Hook = Box<dyn Fn(&io::Error) + Send + Sync>;

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({}, {:?})", self.scheme(), self.listener)
    }
}

impl From<TcpListener> for Door {
    /// Speaks plain HTTP.
    fn from(listener: TcpListener) -> Door {
        Door {
            listener,
            grace: GRACE,
            on_shortage: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Door {
    /// Lets answers that are under way at the end take this long; without it, five seconds.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Door {
        Door { grace, ..self }
    }

    /// Calls `hook` whenever the system has no room for another connection, as when the process is
    /// out of descriptors. Clients that wait cause a call each 50 ms: print it once.
    #[must_use]
    pub fn on_shortage(self, hook: impl Fn(&io::Error) + Send + Sync + 'static) -> Door {
        Door { on_shortage: Some(Box::new(hook)), ..self }
    }

    /// Speaks TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, config: Arc<tokio_rustls::rustls::ServerConfig>) -> Door {
        Door { tls: Some(config.into()), ..self }
    }

    /// Returns `http`, or `https` where TLS is spoken.
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

/// Serves until `shutdown` resolves; `closing` must then end what would stream without end. Answers
/// that are under way then may take for as long as the door says.
pub(super) async fn serve(
    door: Door,
    app: Router,
    shutdown: impl Future<Output = ()>,
    closing: impl FnOnce(),
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            accepted = door.listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or the peer is gone already: neither is a reason to end, and
                // the first would spin without a pause.
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
        match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => {
                let connection = graceful.watcher();
                // Without it each event would wait for the acknowledgement of the one before. It
                // fails only on a closed socket, which the conversation will notice.
                let _ = stream.set_nodelay(true);
                let app = app.clone();
                #[cfg(feature = "tls")]
                if let Some(tls) = door.tls.clone() {
                    tokio::spawn(async move {
                        // A client that agrees on no keys gets no answer that it could read.
                        if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                            converse(stream, app, connection, slot).await;
                        }
                    });
                    continue;
                }
                tokio::spawn(converse(stream, app, connection, slot));
            }
            Err(_) => refuse(&stream),
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
    slot: OwnedSemaphorePermit,
) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(answer(app, request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(Paced::new(stream)), service);
    // An error here is the peer's: it went away or did not speak HTTP (hyper answered 400).
    let _ = graceful.watch(connection).await;
    drop(slot);
}

async fn answer(app: Router, request: Request) -> axum::response::Response {
    match app.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Tells one client too many why it gets nothing, without waiting for it: the socket's buffer is
/// empty and takes the answer.
fn refuse(stream: &TcpStream) {
    let body = format!("{CONNECTIONS_MAX} connections are open, the most allowed: try later\n");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has left misses nothing.
    let _ = stream.try_write(answer.as_bytes());
    // What it has sent already is read: unread, it would make the kernel discard the answer.
    let mut unread = [0; 4096];
    while stream.try_read(&mut unread).is_ok_and(|n| n == unread.len()) {}
}
