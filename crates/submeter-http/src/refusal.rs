//! Answers to requests that are refused.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use submeter::{Rate, Refusal, UnitKind};

/// How long a client is asked to wait for room at a limit, in seconds: the shortest time that the
/// header can express, as it is not known when there will be room again.
const RETRY_AFTER_S: u64 = 1;

/// Makes the response to a request that was refused, by whatever error became a [`Refusal`].
///
/// | Refused by | Status | `Retry-After` |
/// |---|---|---|
/// | a limit on bytes | 507 | 1 |
/// | a limit on anything else | 429 | 1 |
/// | a rate | 429 | after which it would be granted if nothing else were taken |
/// | a rate that never grants so much | 429 | |
/// | a queue in which too many of the tenant's requests wait | 429 | an estimate, at least 1 |
/// | a queue otherwise | 503 | an estimate, at least 1 |
/// | anything, and the group was killed | 410 | |
///
/// `Retry-After` is in whole seconds. A rate never grants more than a burst, nor anything while it
/// is [`Rate::NOTHING`], which is a fleet's rate while nothing is leased. The text names the metric
/// but no group: other tenants are none of the client's business.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Rate, Schema, Tree};
/// use submeter_http::refused;
///
/// let mut schema = Schema::builder();
/// let streams = schema.quota::<Count>("streams", "Streams open");
/// let requests = schema.rate_limit::<Count>("requests", "Requests let in");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(streams, Some(0));
/// tree.root().set_rate(requests, Some(Rate::new(1, Duration::from_secs(60))))?;
///
/// let answer = tree.root().try_charge(streams, 1).map_err(refused).expect_err("none is allowed");
/// assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"1".parse()?));
///
/// tree.root().try_take(requests, 1)?;
/// let answer = tree.root().try_take(requests, 1).map_err(refused).expect_err("one a minute");
/// assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"60".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn refused(refusal: impl Into<Refusal>) -> Response<String> {
    let refusal = refusal.into();
    if refusal.is_killed() {
        return answer(StatusCode::GONE, "the tenant is gone\n".to_owned(), None);
    }
    let after_s = refusal.retry_after().map(whole_seconds);
    match &refusal {
        Refusal::Limit(error) => {
            let metric = error.metric();
            let status = match metric.unit() {
                UnitKind::Bytes => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            let text = format!("the limit of {} is reached: {LATER}\n", metric.name());
            answer(status, text, Some(RETRY_AFTER_S))
        }
        Refusal::Rate(error) => {
            let is_later = after_s.is_some() || error.rate() == Rate::NOTHING;
            let advice = if is_later { LATER } else { "ask for less at once" };
            let text = format!("the rate of {} is reached: {advice}\n", error.name());
            answer(StatusCode::TOO_MANY_REQUESTS, text, after_s)
        }
        Refusal::Admission(error) => {
            let status = match error.is_full_for_group() {
                true => StatusCode::TOO_MANY_REQUESTS,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            answer(status, format!("{error}\n"), Some(after_s.unwrap_or_default().max(1)))
        }
    }
}

/// Rounds up: a retry that comes too early is refused again.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs() + u64::from(after.subsec_nanos() > 0)
}

const LATER: &str = "try again later";

fn answer(status: StatusCode, text: String, retry_after_s: Option<u64>) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
