//! The web server: the live page, its events, the JSON API, `/metrics` and `/healthz`.
//!
//! One sampler copies the tree once a second, and everything that shows a rate reads from it. See
//! [`sampler`] for what that costs while no client looks.

mod api;
mod connections;
mod deletion;
mod encode;
mod events;
mod frame;
mod guard;
mod history;
mod pace;
mod page;
mod routes;
mod sample;
mod sampler;
mod stat;
#[cfg(test)]
mod tests;
mod views;
pub(crate) mod wire;

use std::io;

use submeter_cache::Cache;

pub(crate) use self::api::Shown;
pub(crate) use self::connections::Door;
use self::deletion::Desk;
pub(crate) use self::deletion::{Deleted, Deletions};
pub(crate) use self::guard::Guard;
use self::sampler::Sampler;
pub(crate) use self::views::{View, Views};

/// Serves until `shutdown` resolves, then ends the event streams and returns within seconds. Notes
/// in `deleted` what clients asked it to delete.
///
/// # Errors
/// When the listener is not usable. A failing connection is not an error of the server.
pub(crate) async fn serve(
    door: Door,
    cache: Cache,
    shown: Shown,
    deleted: Deleted,
    guard: Guard,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let grace = cache.config().drain;
    let desk = Desk { cache, deleted };
    let sampler = Sampler::new(shown);
    let ticking = tokio::spawn(sampler::run(sampler.clone()));
    let app = routes::router(sampler.clone(), desk, guard);
    connections::serve(door, app, shutdown, || sampler.close(), grace).await;
    ticking.abort();
    Ok(())
}
