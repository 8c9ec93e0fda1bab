//! The page, the JSON and `/metrics`: how a tree is read over HTTP.

mod api;
mod client;
mod connections;
mod dashboard;
mod deletion;
mod encode;
mod events;
mod frame;
mod guard;
mod gzip;
mod history;
mod limits;
mod pace;
mod panel;
mod query;
mod routes;
mod sample;
mod sampler;
mod stat;
#[cfg(test)]
mod tests;
mod token;
mod totals;
mod verdict;
mod views;
pub mod wire;

use std::io;
use std::net::SocketAddr;

use axum::Router;
/// What [`Dashboard::on_delete`] and [`Dashboard::on_limits`] may answer, alone or with a text.
pub use axum::http::StatusCode;
use tokio::net::{TcpListener, ToSocketAddrs};

pub use self::connections::{Endpoint, Places};
pub use self::dashboard::{Dashboard, Offence};
use self::guard::Guard;
pub use self::panel::{Column, Panel};
use self::sampler::Sampler;
pub use self::token::{Token, TokenError};
pub use self::views::{View, Views, Worse};

/// Returns a router that answers for a program's tree, to be mounted by `nest_service` in any axum
/// router or beside any tower service, under any path.
///
/// The tree is sampled until the last clone of the router and the last stream of events are gone. A
/// stream ends when its client hangs up, so a graceful shutdown of the server waits for open pages.
///
/// # Panics
/// Outside of a tokio runtime, on which the sampler runs.
pub fn router(dashboard: Dashboard) -> Router {
    let guard = Guard::new(None, dashboard.hosts.clone(), dashboard.token.clone());
    let changes = dashboard.changes.clone();
    routes::router(Sampler::start(dashboard), changes, guard)
}

/// Binds an address and [serves](serve) a program's tree there, on a task of its own, until the
/// runtime ends. Returns the address, which has the port if the given one was 0.
///
/// For TLS, or to end before the runtime does, use [`serve`].
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree};
/// use submeter_http::Dashboard;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let at = submeter_http::spawn("127.0.0.1:0", Dashboard::new("service", &tree)).await?;
/// println!("http://{at}/");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the address cannot be bound.
///
/// # Panics
/// Outside of a tokio runtime.
pub async fn spawn(address: impl ToSocketAddrs, dashboard: Dashboard) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let at = listener.local_addr()?;
    tokio::spawn(serve(listener, dashboard, std::future::pending()));
    Ok(at)
}

/// Serves a program's tree on a port of its own until `shutdown` resolves, then ends the event
/// streams and returns within seconds.
///
/// Unlike an axum server, it bounds the number of connections and the time for which a silent or
/// slow client may hold one.
///
/// # Examples
/// ```
/// use std::future::ready;
/// use submeter::{Schema, Tree};
/// use submeter_http::Dashboard;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// println!("http://{}/", port.local_addr()?);
/// submeter_http::serve(port, Dashboard::new("service", &tree), ready(())).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the listener is not usable. A failing connection is not an error of the server.
///
/// # Panics
/// Outside of a tokio runtime.
pub async fn serve(
    endpoint: impl Into<Endpoint>,
    dashboard: Dashboard,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let endpoint = endpoint.into();
    let page = Some((endpoint.scheme(), endpoint.local_addr()?));
    let guard = Guard::new(page, dashboard.hosts.clone(), dashboard.token.clone());
    let changes = dashboard.changes.clone();
    let sampler = Sampler::start(dashboard);
    let app = routes::router(sampler.clone(), changes, guard);
    connections::serve(endpoint, app, shutdown, || sampler.close()).await;
    Ok(())
}
