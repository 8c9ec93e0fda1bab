//! Accepts HTTP connections, bounded in number and in the time a silent or slow peer may hold one.
//!
//! `axum::serve` sets neither bound, and this port is what people expose by accident.

use std::convert::Infallible;
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
use crate::shortage;

/// The most connections at once: some dozens of open pages and every scraper one has.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// How long a peer may take to send a request's head, and be idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Where clients come in.
pub(crate) struct Door {
    listener: TcpListener,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Door {
    /// Speaks TLS if there is a configuration of it.
    #[cfg(feature = "tls")]
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    ) -> Door {
        Door { listener, tls: tls.map(Into::into) }
    }

    /// Speaks plain HTTP: this build has no TLS.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(listener: TcpListener, _none: Option<Infallible>) -> Door {
        Door { listener }
    }
}

/// Serves until `shutdown` resolves; `closing` must then end what would stream without end. Answers
/// that are under way then may take for as long as `grace`.
pub(super) async fn serve(
    door: Door,
    app: Router,
    shutdown: impl Future<Output = ()>,
    closing: impl FnOnce(),
    grace: Duration,
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
                    shortage::tell(&error);
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
