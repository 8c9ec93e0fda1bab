//! Accepts HTTP connections, bounded in number and in the time a silent peer may hold one.
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
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

/// The most connections at once: some dozens of open pages and every scraper one has.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// How long a peer may take to send a request's head, and be idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a peer may take nothing of what is sent to it. It hinders nobody else meanwhile, but
/// its slot is one of few.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers that are under way may take once the server ends.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `shutdown` resolves; `closing` must then end what would stream without end.
pub(super) async fn serve(
    listener: TcpListener,
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
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or the peer is gone already: neither is a reason to end, and
                // the first would spin without a pause.
                Err(_) => {
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => {
                let connection = graceful.watcher();
                tokio::spawn(converse(stream, app.clone(), connection, slot));
            }
            Err(_) => drop(tokio::spawn(refuse(stream))),
        }
    }
    drop(listener);
    closing();
    // A peer that does not read has had its time.
    let _ = timeout(GRACE, graceful.shutdown()).await;
}

async fn converse(
    stream: TcpStream,
    app: Router,
    graceful: hyper_util::server::graceful::Watcher,
    slot: OwnedSemaphorePermit,
) {
    // Without it each event would wait for the acknowledgement of the one before. It fails only on
    // a socket that is closed already, which the conversation will notice.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(answer(app, request.map(Body::new)).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
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

/// Tells one client too many why it gets nothing.
async fn refuse(mut stream: TcpStream) {
    let body = format!("{CONNECTIONS_MAX} connections are open, the most allowed: try later\n");
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let farewell = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    };
    // A client that does not take it within a second does without.
    let _ = timeout(Duration::from_secs(1), farewell).await;
}
