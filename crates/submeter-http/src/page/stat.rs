//! `/api/stat`: counts events of groups for as long as a client listens.
//!
//! It makes every switch more expensive, and only a few may run at once, so it requires a POST with
//! a header that a page of another site cannot send, see [`guard`].
//!
//! A count ends with its connection, so that clients that have left leave no events behind for
//! every switch to count.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use submeter::Tree;
use submeter::perf::{self, EVENTS_MAX, Request, RequestCounts, RequestState, Session};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::guard;
use super::query;
use super::sampler::Sampler;
use super::wire::stat::{CountDoc, NDJSON, StatDoc, StateDoc};

/// Maximum number of concurrent counts: each makes every switch more expensive.
pub(super) const COUNTS_MAX: usize = 8;

/// The shortest interval between two lines.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// How often totals are sent at least. This bounds how late a vanished listener is noticed, how
/// long the count outlives the server, and how old the totals are for a listener that stops between
/// two intervals.
const PULSE: Duration = Duration::from_millis(100);

/// Permits to count.
#[derive(Clone, Debug)]
pub(super) struct Counts(Arc<Semaphore>);

impl Counts {
    pub(super) fn new() -> Counts {
        Counts(Arc::new(Semaphore::new(COUNTS_MAX)))
    }
}

/// Answers `POST /api/stat?e=EVENTS&g=GROUP&…&interval=MS`, with `e` and `g` alternating.
pub(super) async fn stat(
    State(sampler): State<Sampler>,
    Extension(counts): Extension<Counts>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if let Err(why) = guard::is_meant(&headers, "counting") {
        return why.into_response();
    }
    let Some(pairs) = query::pairs(&uri) else {
        let message = "invalid percent escape in the query: write %25 for a percent sign\n";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    let (requests, interval) = match read(sampler.tree_of_groups(), &pairs) {
        Ok(wanted) => wanted,
        Err((status, message)) => return (status, message).into_response(),
    };
    let Ok(permit) = counts.0.try_acquire_owned() else {
        let message =
            format!("{COUNTS_MAX} counts are already running, the maximum: end one of them\n");
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let session = Session::open(sampler.tree_of_groups(), requests);
    let began = Instant::now();
    let count = Count { sampler, session, began, interval, due: 1, _permit: permit };
    let lines = stream::unfold(count, |mut count| async move {
        let line = count.next().await?;
        Some((Ok::<_, Infallible>(line), count))
    });
    ([(CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response()
}

/// A count with a client that listens.
struct Count {
    sampler: Sampler,
    session: Session,
    began: Instant,
    interval: Duration,
    /// How many intervals end with the next one.
    due: u32,
    _permit: OwnedSemaphorePermit,
}

impl Count {
    /// Waits for the end of the interval, or until a sign of life is due; `None` if the server is
    /// shutting down.
    async fn next(&mut self) -> Option<Bytes> {
        let due = self.interval.saturating_mul(self.due);
        let left = due.saturating_sub(self.began.elapsed());
        sleep(left.min(PULSE)).await;
        if self.sampler.is_closed() {
            return None;
        }
        let elapsed = self.began.elapsed();
        let is_due = left <= PULSE;
        if is_due {
            // A reader that sleeps through intervals does not catch up on them.
            let ended = elapsed.as_nanos() / self.interval.as_nanos().max(1);
            let ended = u32::try_from(ended).unwrap_or(u32::MAX).max(self.due);
            self.due = ended.saturating_add(1);
        }
        let counts = self.session.counts();
        let totals = StatDoc {
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            is_due,
            threads: self.session.threads(),
            counts: counts.iter().flat_map(documents).collect(),
        };
        let mut line = serde_json::to_vec(&totals).ok()?;
        line.push(b'\n');
        Some(line.into())
    }
}

/// Makes one document for each event.
fn documents(counts: &RequestCounts) -> impl Iterator<Item = CountDoc> {
    let pinned = if counts.events().is_pinned() { "D" } else { "" };
    counts.events().events().iter().enumerate().map(move |(index, event)| {
        let mut event = event.to_string();
        if !pinned.is_empty() {
            let colon = if event.contains(':') { "" } else { ":" };
            event = format!("{event}{colon}{pinned}");
        }
        let state = match counts.state() {
            RequestState::Counting => StateDoc::Counted { value: counts.values()[index] },
            RequestState::NotSupported(why) => {
                StateDoc::NotSupported { reason: why.reason().to_owned() }
            }
            RequestState::Error(reason) => StateDoc::Error { reason: reason.clone() },
            _ => StateDoc::NotCounted,
        };
        CountDoc {
            group: counts.path().map(str::to_owned),
            event,
            state,
            enabled_ns: counts.enabled_ns(),
            running_ns: counts.running_ns(),
        }
    })
}

type Refusal = (StatusCode, String);

fn read(tree: &Tree, query: &[(String, String)]) -> Result<(Vec<Request>, Duration), Refusal> {
    let bad = |message: String| (StatusCode::BAD_REQUEST, message);
    let (mut requests, mut events, mut interval) = (Vec::new(), None, Duration::from_secs(1));
    let mut total = 0;
    for (name, value) in query {
        match (&**name, events.take()) {
            ("e", None) => {
                let parsed = perf::parse(value).map_err(|e| bad(format!("{e}\n")))?;
                total += parsed.iter().map(|group| group.events().len()).sum::<usize>();
                events = Some(parsed);
            }
            ("g", Some(events)) => requests.extend(for_group(tree, value, events)?),
            ("interval", None) => {
                let ms = value.parse().ok().map(Duration::from_millis);
                interval = ms.filter(|ms| *ms >= INTERVAL_MIN).ok_or_else(|| {
                    bad(format!("invalid interval={value:?}: use milliseconds, 10 or more\n"))
                })?;
            }
            _ => {
                let message = "specify what to count and for which group: \
                               /api/stat?e=task-clock&g=/acme/web\n";
                return Err(bad(message.to_owned()));
            }
        }
    }
    if requests.is_empty() || events.is_some() {
        let message = "specify what to count and for which group: \
                       /api/stat?e=task-clock&g=/acme/web\n";
        return Err(bad(message.to_owned()));
    }
    if total > EVENTS_MAX {
        return Err(bad(format!("{total} events are too many: use at most {EVENTS_MAX}\n")));
    }
    Ok((requests, interval))
}

fn for_group(
    tree: &Tree,
    path: &str,
    events: Vec<perf::EventGroup>,
) -> Result<Vec<Request>, Refusal> {
    if path.is_empty() {
        return Ok(events.into_iter().map(Request::everywhere).collect());
    }
    let Some(group) = tree.get(path) else {
        let message = format!("no group {path:?}: /api/tree lists the live ones\n");
        return Err((StatusCode::NOT_FOUND, message));
    };
    Ok(events.into_iter().map(|events| Request::group(&group, events)).collect())
}
