//! The web server: the live page, its events, the JSON API, `/metrics` and `/healthz`.
//!
//! One sampler copies the tree once a second and everything that shows a rate reads from it, however
//! many look. See [`sampler`] for what that costs when nobody does.

mod api;
mod connections;
mod encode;
mod events;
mod history;
mod overview;
mod page;
mod routes;
mod sampler;
pub(crate) mod wire;

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use submeter::Tree;
use submeter_cache::{Cache, Metrics};
use tokio::net::TcpListener;

use self::sampler::Sampler;

/// What the page says about the server it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    /// Where the cache listens.
    pub(crate) listen: SocketAddr,
    /// When it started.
    pub(crate) started: SystemTime,
    /// Whether requests are metered.
    pub(crate) metering: bool,
}

impl ServerInfo {
    /// Describes a server that starts now.
    pub(crate) fn new(listen: SocketAddr, metering: bool) -> ServerInfo {
        ServerInfo { listen, started: SystemTime::now(), metering }
    }
}

/// Serves until `shutdown` resolves, then ends the event streams and returns within seconds.
///
/// # Errors
/// When the listener is not usable. A failing connection is not an error of the server's.
pub(crate) async fn serve(
    listener: TcpListener,
    cache: Cache,
    info: ServerInfo,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let source = Source { tree: cache.tree().clone(), metrics: cache.metrics().clone() };
    serve_source(listener, source, info, shutdown).await
}

/// What is shown: a tree, and which of its metrics the page gives a column.
#[derive(Clone, Debug)]
struct Source {
    tree: Tree,
    metrics: Metrics,
}

async fn serve_source(
    listener: TcpListener,
    source: Source,
    info: ServerInfo,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.local_addr()?;
    let sampler = Sampler::new(source, info);
    let ticking = tokio::spawn(sampler::run(sampler.clone()));
    let app = routes::router(sampler.clone());
    connections::serve(listener, app, shutdown, || sampler.close()).await;
    ticking.abort();
    Ok(())
}
