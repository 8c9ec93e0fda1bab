//! One line to a live view of any program's tree.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which exporter
//! when](submeter::guide::exporting).
//!
//! [`router`] has a page that shows every group as it changes, the JSON from which `submeter top`
//! and other programs read the same, counts of events for `submeter stat`, `/metrics` and
//! `/healthz`. It knows no metric by name: it shows what the tree's schema declares, or the
//! [`Views`] that the program declares.
//!
//! ```
//! use submeter::{Count, Schema, Tree};
//! use submeter_http::Dashboard;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let tree = Tree::new(schema.build()?)?;
//!
//! let app = axum::Router::<()>::new()
//!     // …the program's own routes…
//!     .nest_service("/tenants", submeter_http::router(Dashboard::new("service", &tree)));
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! | Address | Answer |
//! |---|---|
//! | `/` | the page |
//! | `/api/tree` | all groups: [`wire::TreeDoc`] |
//! | `/api/group?path=` | one group with its past, as of the last sample: [`wire::DetailDoc`] |
//! | `/api/totals` | what to bill: [`wire::totals::TotalsDoc`] |
//! | `/api/events` | the page's stream of events, which is between the two and not documented |
//! | `DELETE /api/group?path=` | where [`Dashboard::on_delete`] is asked for: the program's own |
//! | `POST /api/limits` | where [`Dashboard::on_limits`] is asked for: the program's own |
//! | `POST /api/stat?e=&g=` | counts of events: lines of [`wire::stat::TotalsDoc`] |
//! | `/metrics` | OpenMetrics or Prometheus' text, whichever the client accepts |
//! | `/healthz` | `ok` |
//!
//! `DELETE` and `POST` take the header `X-Submeter: 1`, which no page of another site can send:
//! `curl -X DELETE -H 'X-Submeter: 1' 'http://HOST/api/group?path=/acme'`.
//!
//! # Verdicts
//! Once a sample the figures of all tenants are judged, and who is harmed is named with who is to
//! blame, in one sentence that the page, `/api/tree` and `submeter top` have alike:
//!
//! ```text
//! /load/tenant1 takes most: 99.9 % of all requests and 98 % of CPU.
//! /quiet waits 12.6 ms a request, 60 times as long as its work.
//! ```
//!
//! | Verdict | A tenant that | By views with |
//! |---|---|---|
//! | bursts | has twice its usual rate, and a quarter of all | [`View::contended`] |
//! | takes most | has far more than a fair part | [`View::contended`] |
//! | waits | waits 1 ms and ten times as long as its work takes | [`View::wait_for`] |
//! | is slow, finds less | is four times as slow, finds 30 % less than usual | [`View::worse`] |
//! | gets less | does 30 % less than usual while another bursts | [`View::contended`] |
//! | is refused | is at a limit that refuses something | [`View::trouble`] |
//! | waits for room | is at a limit at which its charges wait | [`View::pressure`] |
//!
//! Nobody is blamed who harms nobody, and of fewer than 30 requests in a sample only a wait says
//! anything. A verdict is true for two samples before it is said, and away for two before it is
//! over; the last twenty are kept. What is usual is the median of two minutes, or from before a
//! verdict that lasts, for ten minutes. It is known of as many tenants as have a past: some 4,000.
//! `prefix_verdict_tenants` counts tenants by verdict. Views that a schema suggests have these
//! roles as far as their kind says which.
//!
//! # Costs
//! A sampler copies the tree once a second, for the two minutes of past that the page shows. While
//! nobody looks it takes at most 1 % of one processor: it then copies large trees less often, at
//! least once a minute, which is 1 % at some 250,000 groups. What clients ask for is made on
//! threads that may block, and shared by those who ask at the same time: memory depends on the
//! tree, not on the number of clients. It is some 2 kB for each group on top of it, as much again
//! while `/api/tree` is fetched, and some 1 kB more while slow clients read two versions of its
//! text. Allocators may keep all of it afterwards. A service of
//! 10,000 tenants had 109 MB, 131 MB once the tree was fetched, and 214 MB while 250 clients left
//! it unread. By the feature `gzip`, which is on by default, the page and the JSON of `/api/tree`
//! and `/api/group` are compressed for clients that accept it, as browsers do: 10,000 groups have
//! 0.24 MB instead of 4.2 MB.
//!
//! [`serve`] has places for 256 connections. Further clients are told so, but `/healthz` answers
//! them all the same.
//!
//! # When not to use it
//! Mount it where only operators get: it shows all tenants to everybody who reaches it, unless it
//! asks for a [`Token`]. Pages of other sites get no answer in any case. A program without tokio
//! can write `/metrics` with `submeter::export` alone.

#![forbid(unsafe_code)]

mod api;
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
mod page;
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

use axum::Router;
/// What [`Dashboard::on_delete`] and [`Dashboard::on_limits`] may answer, alone or with a text.
pub use axum::http::StatusCode;

pub use self::connections::Endpoint;
pub use self::dashboard::{Dashboard, Offence};
use self::guard::Guard;
pub use self::panel::{Column, Panel};
use self::sampler::Sampler;

pub use self::token::{Token, TokenError};
pub use self::views::{View, Views, Worse};

/// Returns what answers for a program's tree, to be mounted by `nest_service` in any router of axum
/// or beside any service of tower, under whatever path.
///
/// The tree is sampled until the last clone of the router and the last stream of events are gone. A
/// stream ends when its client hangs up, so a graceful end of the server waits for those who look.
///
/// # Panics
/// Outside of a tokio runtime, on which the sampler runs.
pub fn router(shown: Dashboard) -> Router {
    let guard = Guard::new(None, shown.hosts.clone(), shown.token.clone());
    let changes = shown.changes.clone();
    routes::router(Sampler::start(shown), changes, guard)
}

/// Serves a program's tree on a port of its own until `shutdown` resolves, then ends the event
/// streams and returns within seconds.
///
/// Other than a server of axum, it bounds the number of connections, and the time for which a
/// silent or slow client may hold one.
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
/// When the listener is not usable. A failing connection is not an error of the server.
///
/// # Panics
/// Outside of a tokio runtime.
pub async fn serve(
    door: impl Into<Endpoint>,
    shown: Dashboard,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let door = door.into();
    let page = Some((door.scheme(), door.local_addr()?));
    let guard = Guard::new(page, shown.hosts.clone(), shown.token.clone());
    let changes = shown.changes.clone();
    let sampler = Sampler::start(shown);
    let app = routes::router(sampler.clone(), changes, guard);
    connections::serve(door, app, shutdown, || sampler.close()).await;
    Ok(())
}
