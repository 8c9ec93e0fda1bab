//! The web server: the live page, its events, the JSON API, `/metrics` and `/healthz`.
//!
//! One sampler copies the tree once a second and everything that shows a rate reads from it, however
//! many look. See [`sampler`] for what that costs when nobody does.

mod api;
mod connections;
mod deletion;
mod encode;
mod events;
mod history;
mod overview;
mod page;
mod routes;
mod sampler;
mod stat;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use submeter_cache::Cache;
use tokio::net::TcpListener;

pub(crate) use self::deletion::Deleted;
use self::deletion::Desk;
use self::sampler::Sampler;

/// What the page says about the server it belongs to, beyond what its cache was told.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    /// Where the cache listens.
    pub(crate) listen: SocketAddr,
    /// When it started.
    pub(crate) started: SystemTime,
}

impl ServerInfo {
    /// Describes a server that starts now.
    pub(crate) fn new(listen: SocketAddr) -> ServerInfo {
        ServerInfo { listen, started: SystemTime::now() }
    }
}

/// Serves until `shutdown` resolves, noting in `deleted` what it was told to delete; then ends the event streams and returns within seconds.
///
/// # Errors
/// When the listener is not usable. A failing connection is not an error of the server's.
pub(crate) async fn serve(
    listener: TcpListener,
    cache: Cache,
    info: ServerInfo,
    deleted: Deleted,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let desk = Desk { cache: cache.clone(), page: listener.local_addr()?, deleted };
    let sampler = Sampler::new(cache, info);
    let ticking = tokio::spawn(sampler::run(sampler.clone()));
    let app = routes::router(sampler.clone(), desk);
    connections::serve(listener, app, shutdown, || sampler.close()).await;
    ticking.abort();
    Ok(())
}
