//! Answers to requests that are refused.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use submeter::admission::AdmissionError;
use submeter::{LimitError, Rate, RateError, UnitKind};

/// How long a client is asked to wait after a refusal, in seconds: the shortest time that the
/// header can express, as it is not known when there will be room again.
const RETRY_AFTER_S: u64 = 1;

/// Makes the response to a request whose charge was refused: 507 if bytes are limited, 429
/// otherwise, with `Retry-After`; 410 if the group was [killed](LimitError::is_killed) while the
/// charge waited. The text names the quota but no group: other tenants are none of the client's
/// business.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let streams = schema.quota::<Count>("streams", "Streams open");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(streams, Some(0));
/// let refused = tree.root().try_charge(streams, 1).expect_err("none is allowed");
/// assert_eq!(submeter_http::refused(&refused).status(), 429);
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
/// after which it would be granted if nothing else were taken. A take that can never be granted has
/// no `Retry-After`: one larger than a burst, or one from [`Rate::NOTHING`], which is a fleet's
/// rate while nothing is leased. The text names the rate but no group.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Rate, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.rate_limit::<Count>("requests", "Requests");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_rate(requests, Some(Rate::new(1, Duration::from_secs(60))))?;
/// tree.root().try_take(requests, 1)?;
/// let refused = tree.root().try_take(requests, 1).expect_err("one a minute");
/// let response = submeter_http::throttled(&refused);
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["retry-after"], "60");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn throttled(error: &RateError) -> Response<String> {
    let after = error.retry_after();
    let is_later = after.is_some() || error.rate() == Rate::NOTHING;
    let advice = if is_later { LATER } else { "ask for less at once" };
    let after_s = after.map(whole_seconds);
    refusal(StatusCode::TOO_MANY_REQUESTS, format!("the rate of {}", error.name()), advice, after_s)
}

/// Makes the response to a request that was not admitted: 429 if too many of its tenant's requests
/// wait, 410 if the group was killed, 503 otherwise, with `Retry-After` in whole seconds, at least
/// one. Its text names no group.
///
/// # Examples
/// ```
/// use submeter::admission::Admission;
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let refused = Admission::new(0).try_acquire(tree.root()).expect_err("no places");
/// let answer = submeter_http::not_admitted(&refused);
/// assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn not_admitted(error: &AdmissionError) -> Response<String> {
    if error.is_killed() {
        return text(StatusCode::GONE, "the tenant is gone\n".to_owned());
    }
    let status = if error.is_full_for_group() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut response = text(status, format!("{error}\n"));
    let after = error.retry_after().unwrap_or_default();
    let after_s = whole_seconds(after).max(1);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after_s));
    response
}

/// Rounds up: a retry that comes too early is refused again.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
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
