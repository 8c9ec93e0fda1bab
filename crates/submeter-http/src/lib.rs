//! HTTP for tenants: layers that count and limit each tenant's requests, and a live view of any
//! program's tree in one line.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which exporter to
//! choose](submeter::guide::exporting).
//!
//! # Layers
//! [`MeterLayer`] is a tower layer for hyper, axum and tonic. It finds a request's group, enters it
//! for the call, for each poll of the response and for each frame of both bodies, and counts what
//! [`HttpMetrics`] lists. A handler finds the group in the request's extensions, or by
//! [`switch::current`](submeter::switch::current). To enter groups without counting, use
//! [`GroupLayer`] and, for a body alone,
//! [`in_group`](submeter::switch::InGroup::in_group).
//!
//! Inside it, [`RateLayer`] refuses requests that exceed their tenant's rate, and
//! [`AdmissionLayer`] makes them wait for their tenant's turn. [`QuotaLayer`] charges each request
//! to a quota until its answer ends, for example as one request in flight. [`refused`] makes the
//! answer to whatever is refused.
//!
//! A connection that is upgraded starts afresh: put it `in_group` before reading from it.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use submeter_http::{HttpMetrics, MeterLayer};
//! use submeter::{Schema, Tree};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let mut schema = Schema::builder();
//! let metrics: HttpMetrics = schema.declare();
//! let tree = Tree::new(schema.build()?)?;
//! let web = tree.create("/web")?;
//!
//! let tenants = tree.clone();
//! let tenant = move |request: &Request<Full<&[u8]>>| {
//!     tenants.get(request.headers().get("tenant")?.to_str().ok()?)
//! };
//! let hello = |_| async { Ok::<_, std::io::Error>(Response::new(Full::new(&b"hello"[..]))) };
//! let service =
//!     ServiceBuilder::new().layer(MeterLayer::new(metrics, tenant)).service(service_fn(hello));
//!
//! let request = Request::get("/").header("tenant", "/web").body(Full::default())?;
//! let answer = service.oneshot(request).await?.into_body().collect().await?;
//! assert_eq!(answer.to_bytes(), "hello");
//! assert_eq!((web.sum(metrics.requests), web.sum(metrics.response_bytes)), (1, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The page
//! [`router`] serves a page that shows every group as it changes, the same as JSON for `submeter
//! top` and other programs, counts of events for `submeter stat`, `/metrics` and `/healthz`. It
//! knows no metric by name: it shows what the tree's schema declares, or the [`Views`] that the
//! program declares.
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
//! In a program that serves no HTTP otherwise, [`spawn`] opens a port of its own; [`serve`] ends
//! when the program wants it to.
//!
//! | Address | Answer |
//! |---|---|
//! | `/` | the page |
//! | `/api/tree` | all groups: [`wire::TreeDoc`] |
//! | `/api/group?path=` | one group with its past, as of the last sample: [`wire::DetailDoc`] |
//! | `/api/totals` | what to bill: [`wire::totals::TotalsDoc`] |
//! | `/api/events` | the page's stream of events, which is private to the page and not documented |
//! | `DELETE /api/group?path=` | where [`Dashboard::deletes`] or `on_delete` is asked for |
//! | `POST /api/limits` | where [`Dashboard::on_limits`] is asked for: the program's own |
//! | `POST /api/limit?path=` | where [`Dashboard::on_limit`] is asked for: the program's own |
//! | `POST /api/stat?e=&g=` | counts of events: lines of [`wire::stat::StatDoc`] |
//! | `/metrics` | OpenMetrics or Prometheus' text, whichever the client accepts |
//! | `/healthz` | `ok` |
//!
//! `DELETE` and `POST` require the header `X-Submeter: 1`, which no page of another site can send:
//! `curl -X DELETE -H 'X-Submeter: 1' 'http://HOST/api/group?path=/acme'`.
//!
//! ## Verdicts
//! Each sample judges the figures of all tenants. A verdict names the tenant that is harmed and the
//! one that is to blame, in one sentence, the same on the page, in `/api/tree` and in `submeter
//! top`:
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
//! | is throttled | is over a rate, and waits for it | [`View::delays`] |
//! | waits for room | is at a limit at which its charges wait | [`View::pressure`] |
//!
//! A tenant that harms no other is not blamed, and with fewer than 30 requests in a sample only a
//! wait is reported. A verdict must hold for two samples before it is reported, and be absent for
//! four before it ends. The last twenty are kept. The usual value is the median of two minutes or,
//! while a verdict lasts, the value before it, for at most ten minutes. It is known for the tenants
//! that have a past: some 4,000. `prefix_verdict_tenants` counts tenants by verdict. The views that
//! a schema suggests have these roles as far as their kind determines them.
//!
//! A refusal is shown in the row of the group whose limit refused and in the rows above it, not
//! below. A verdict on a group counts only what that group's own limit refused. While that limit
//! refuses something, groups below it that wait accuse only each other: a group that has no part in
//! a limit keeps no other waiting for it. Which of them the limit refused is known only where the
//! program counts it, in a view that [`lacks`](View::lacks) what is limited.
//!
//! ## Costs of the page
//! A sampler copies the tree once a second, for the two minutes of past that the page shows.
//! Without viewers it uses at most 1 % of one processor: it then copies large trees less often, but
//! at least once a minute, which is 1 % at some 250,000 groups. Answers are made on threads that
//! may block, and clients that ask at the same time share them. Memory therefore depends on the
//! tree, not on the number of clients. On top of the tree, each group takes some 2 kB, as much
//! again while `/api/tree` is fetched, and some 1 kB more while slow clients read two versions of
//! its text. Allocators may keep all of it afterwards. A service of 10,000 tenants had 109 MB, 131
//! MB once the tree was fetched, and 214 MB while 250 clients left it unread. With the feature
//! `gzip`, which is on by default, the page and the JSON of `/api/tree` and `/api/group` are
//! compressed for clients that accept it, as browsers do: 10,000 groups take 0.24 MB instead of 4.2
//! MB.
//!
//! [`serve`] has places for 256 connections. When all are taken, a new client gets the place of the
//! client that has waited longest without an admitted request. If there is no such client, the new
//! one gets an error that says so, except from `/healthz`.
//!
//! ## When not to use the page
//! Mount it where only operators can reach it: it shows all tenants to everybody who reaches it,
//! unless it requires a [`Token`]. Pages of other sites never get an answer. A program without
//! tokio can write `/metrics` with `submeter::export` alone.

#![forbid(unsafe_code)]
// docs.rs says which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "page"),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "docs are of the whole, and link to all of it"
    )
)]

mod admission;
mod body;
mod group;
mod holding;
mod meter;
mod metrics;
#[cfg(feature = "page")]
mod page;
mod quota;
mod rate;
mod refusal;
#[cfg(test)]
mod tests;

pub use self::admission::{AdmissionFuture, AdmissionLayer, AdmissionService, AdmittedBody};
pub use self::body::MeteredBody;
pub use self::group::{GroupLayer, GroupService};
pub use self::holding::HoldingFuture;
pub use self::meter::{MeterFuture, MeterLayer, MeterService};
pub use self::metrics::HttpMetrics;
#[cfg(feature = "page")]
pub use self::page::{
    Column, Dashboard, Endpoint, Offence, Panel, Places, StatusCode, Token, TokenError, View,
    Views, Worse, router, serve, spawn, wire,
};
pub use self::quota::{QuotaFuture, QuotaLayer, QuotaService};
pub use self::rate::{RateFuture, RateLayer, RateService};
pub use self::refusal::refused;
