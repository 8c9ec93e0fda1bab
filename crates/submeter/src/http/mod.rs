//! HTTP requests in the groups of their tenants, from the first byte to the last.
//!
//! [`MeterLayer`] is a tower layer for hyper, axum and tonic. It finds a request's group, enters it
//! for the call, for each poll of the response and for each frame of both bodies, and counts what
//! [`HttpMetrics`] lists. A handler finds the group in the request's extensions, or by
//! [`switch::current`](crate::switch::current). To enter groups without counting, use
//! [`GroupLayer`](crate::switch::GroupLayer) and, for a body alone,
//! [`in_group`](crate::switch::InGroup::in_group).
//!
//! Inside of it, [`RateLayer`] answers requests that exceed a rate of their tenant; [`refused`]
//! makes the answer to one whose charge was refused.
//!
//! A connection that is upgraded is a new beginning: put it `in_group` before reading from it.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use submeter::http::{HttpMetrics, MeterLayer};
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

mod body;
mod layer;
mod rate;

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use submeter_percpu::Rate;

pub use body::MeteredBody;
pub use layer::{MeterFuture, MeterLayer, MeterService};
pub use rate::{RateFuture, RateLayer, RateService};

use crate::limits::charge::LimitError;
use crate::limits::rate::RateError;
use crate::metric::histogram::Buckets;
use crate::metric::schema::{Counter, Gauge, Histogram, Metrics, SchemaBuilder};
use crate::metric::unit::{Bytes, Count, Nanoseconds, UnitKind};

/// The keys of what [`MeterLayer`] counts in the group of each request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HttpMetrics {
    /// `http_requests`: requests received.
    pub requests: Counter<Count>,
    /// `http_active_requests`: requests received whose responses have not ended.
    pub active: Gauge<Count>,
    /// `http_errors`: responses with a status of 500 or more; services, bodies and handlers that
    /// failed or panicked; bodies that ended before they had the bytes of their `Content-Length`.
    pub errors: Counter<Count>,
    /// `http_aborted`: requests that were given up before the end of their responses, as when a
    /// client goes away. A response has ended once all that its head promises was handed over: the
    /// bytes of its `Content-Length`, or none, as for `HEAD` and by the statuses 204 and 304.
    pub aborted: Counter<Count>,
    /// `http_request_bytes`: bytes of request bodies that were read.
    pub request_bytes: Counter<Bytes>,
    /// `http_response_bytes`: bytes of response bodies, up to the `Content-Length` if there is one.
    pub response_bytes: Counter<Bytes>,
    /// `http_duration`: from the call of the service to the last byte of the response's body.
    pub duration: Histogram<Nanoseconds>,
}

/// Takes some 120 of a section's 512 words.
///
/// # Examples
/// ```
/// use submeter::Schema;
/// use submeter::http::HttpMetrics;
///
/// let mut schema = Schema::builder();
/// let metrics: HttpMetrics = schema.declare();
/// assert!(schema.build()?.metric("http_requests").is_some());
/// # let _ = metrics;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Metrics for HttpMetrics {
    fn declare(schema: &mut SchemaBuilder) -> HttpMetrics {
        HttpMetrics {
            requests: schema.counter("http_requests", "Requests received"),
            active: schema.gauge("http_active_requests", "Requests whose responses have not ended"),
            errors: schema.counter("http_errors", "Responses that failed"),
            aborted: schema.counter("http_aborted", "Requests given up before the response ended"),
            request_bytes: schema.counter("http_request_bytes", "Bytes of request bodies read"),
            response_bytes: schema.counter("http_response_bytes", "Bytes of response bodies"),
            duration: schema.histogram(
                "http_duration",
                "Time from the request to the last byte of the response",
                Buckets::LATENCY_NS,
            ),
        }
    }
}

/// How long a client is asked to wait after a refusal, in seconds: the shortest time that the
/// header can say. When room comes back is not known.
const RETRY_AFTER_S: u64 = 1;

/// Makes the response to a request whose charge was refused: 507 where bytes are limited, else 429,
/// with `Retry-After`; 410 where the group was [killed](LimitError::is_killed) while the charge
/// waited. Its text names the quota but no group: other tenants are not the client's business.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree, http};
///
/// let mut schema = Schema::builder();
/// let streams = schema.quota::<Count>("streams", "Streams open");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(streams, Some(0));
/// let refused = tree.root().try_charge(streams, 1).expect_err("none is allowed");
/// assert_eq!(http::refused(&refused).status(), 429);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn refused(error: &LimitError) -> Response<String> {
    if error.is_killed() {
        return text(StatusCode::GONE, "the tenant is gone\n".to_owned());
    }
    let metric = error.metric();
    let status = match metric.unit() {
        UnitKind::Bytes => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    refusal(status, format!("the limit of {}", metric.name()), LATER, Some(RETRY_AFTER_S))
}

/// Makes the response to a request that a rate refused: 429, with `Retry-After` in whole seconds,
/// after which it would be granted if nothing else were taken. A take of more than a burst, which
/// is never granted, gets none, nor does one that would be granted in more than a day, as where a
/// rate of a fleet grants nothing for now. Its text names the rate but no group.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Rate, Schema, Tree, http};
///
/// let mut schema = Schema::builder();
/// let requests = schema.rate_limit::<Count>("requests", "Requests");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_rate(requests, Some(Rate::new(1, Duration::from_secs(60))))?;
/// tree.root().try_take(requests, 1)?;
/// let refused = tree.root().try_take(requests, 1).expect_err("one a minute");
/// let response = http::throttled(&refused);
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["retry-after"], "60");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn throttled(error: &RateError) -> Response<String> {
    let rounded_up = |after: Duration| after.as_secs() + u64::from(after.subsec_nanos() > 0);
    let after = error.retry_after();
    let is_later = after.is_some() || error.rate() == Rate::NOTHING;
    let advice = if is_later { LATER } else { "ask for less at once" };
    let after_s = after.map(rounded_up);
    refusal(StatusCode::TOO_MANY_REQUESTS, format!("the rate of {}", error.name()), advice, after_s)
}

const LATER: &str = "try again later";

fn refusal(
    status: StatusCode,
    reached: String,
    advice: &str,
    retry_after_s: Option<u64>,
) -> Response<String> {
    let mut response = text(status, format!("{reached} is reached: {advice}\n"));
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn text(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
