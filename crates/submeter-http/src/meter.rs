//! The layer, its service, and the life of one exchange of request and response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Instant;

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use pin_project_lite::pin_project;
use submeter::Group;
use submeter::switch::{InGroupOf, Keeper};
use tower_layer::Layer;
use tower_service::Service;

use super::{HttpMetrics, MeteredBody};

/// Handles and counts each request in the group that a function finds for it.
///
/// The function runs for each request, so it should be no more than a lookup and a clone. If it
/// finds no group, the request is handled outside all groups and not counted. The layer should be
/// the outermost one: work outside it belongs to no group. It changes the types of both bodies, so
/// layers that fix a body's type, such as axum's `from_fn`, need a `.layer(…)` of their own and
/// cannot share a tuple with it.
///
/// Costs two switches for each poll, and seven updates for each request.
///
/// # Examples
/// See the [crate](super#layers).
#[derive(Clone, Copy, Debug)]
pub struct MeterLayer<R> {
    metrics: HttpMetrics,
    resolve: R,
}

impl<R> MeterLayer<R> {
    /// Makes a layer from the metrics and the function that finds a request's group.
    pub fn new(metrics: HttpMetrics, resolve: R) -> MeterLayer<R> {
        MeterLayer { metrics, resolve }
    }
}

impl<S, R: Clone> Layer<S> for MeterLayer<R> {
    type Service = MeterService<S, R>;

    fn layer(&self, inner: S) -> MeterService<S, R> {
        MeterService { inner, metrics: self.metrics, resolve: self.resolve.clone() }
    }
}

/// A service whose requests are counted in their groups. See [`MeterLayer`].
#[derive(Clone, Copy, Debug)]
pub struct MeterService<S, R> {
    inner: S,
    metrics: HttpMetrics,
    resolve: R,
}

impl<S, R, B, A> Service<Request<B>> for MeterService<S, R>
where
    S: Service<Request<MeteredBody<B>>, Response = Response<A>>,
    R: Fn(&Request<B>) -> Option<Group>,
    B: Body,
    A: Body,
{
    type Response = Response<MeteredBody<A>>;
    type Error = S::Error;
    type Future = MeterFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let metrics = self.metrics;
        let group = (self.resolve)(&request);
        let exchange = group.map(|group| Exchange::begin(group, metrics));
        let group = exchange.as_ref().map(Exchange::group);
        if let Some(group) = group {
            request.extensions_mut().insert(group.clone());
        }
        let method = request.method().clone();
        let future = {
            let _entered = group.map(Group::enter);
            let body = |body| MeteredBody::of_request(body, group, metrics.request_bytes);
            self.inner.call(request.map(body))
        };
        MeterFuture { future: InGroupOf::new(future, exchange), method }
    }
}

pin_project! {
    /// The future of a response that is counted in a group. See [`MeterLayer`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct MeterFuture<F> {
        #[pin]
        future: InGroupOf<F, Option<Exchange>>,
        method: Method,
    }
}

impl<F, A, E> Future for MeterFuture<F>
where
    F: Future<Output = Result<Response<A>, E>>,
    A: Body,
{
    type Output = Result<Response<MeteredBody<A>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut future, exchange, entered) = this.future.enter();
        let polled = future.as_mut().as_pin_mut().expect("not polled after its end").poll(context);
        let answered = ready!(polled);
        future.set(None);
        drop(entered);
        let mut exchange = exchange.take();
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                if let Some(exchange) = &mut exchange {
                    exchange.end(End::Failed);
                }
                return Poll::Ready(Err(error));
            }
        };
        if let Some(exchange) = &mut exchange {
            exchange.failed = response.status().is_server_error();
            exchange.left = promised(this.method, &response);
            // A server need not poll a body from which it sends nothing.
            if exchange.left == Some(0) || response.body().is_end_stream() {
                exchange.body_over();
            }
        }
        Poll::Ready(Ok(response.map(|body| MeteredBody::of_response(body, exchange))))
    }
}

/// Returns the number of body bytes that the head of a response promises: a server sends no more,
/// and a client waits for them. `None` if only the body itself marks its end.
fn promised(method: &Method, response: &Response<impl Body>) -> Option<u64> {
    let status = response.status();
    // RFC 9110, 6.4.1 and 15: no body is sent, whatever the handler made.
    let is_bare = *method == Method::HEAD
        || *method == Method::CONNECT && status.is_success()
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_bare {
        return Some(0);
    }
    // Without a declared length, servers write the one that the body knows.
    content_length(response.headers()).or_else(|| response.body().size_hint().exact())
}

/// Returns the declared length. `None` if a transfer coding takes precedence, if the length is not
/// a number, or if there are several that differ.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter().map(|length| {
        let digits = length.to_str().ok()?;
        // Rust's parser also accepts a sign.
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// A request and its response. Counts their end when dropped, unless it was counted before.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Group,
    metrics: HttpMetrics,
    begun: Instant,
    /// Whether the answer is that of a failed server, whatever becomes of its body.
    failed: bool,
    /// How many of the promised body bytes are still to come, if that is known.
    left: Option<u64>,
    has_ended: bool,
}

/// How a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Failed,
    /// Before its body was over.
    GivenUp,
}

impl Exchange {
    fn begin(group: Group, metrics: HttpMetrics) -> Exchange {
        group.inc(metrics.requests);
        group.inc(metrics.active);
        let begun = Instant::now();
        Exchange { group, metrics, begun, failed: false, left: None, has_ended: false }
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Counts bytes of the response's body, except those beyond the promised length, which no
    /// client gets. The last promised byte completes the response, as the server may never poll for
    /// the body's end.
    pub(super) fn sent(&mut self, bytes: u64) {
        let sent = self.left.map_or(bytes, |left| left.min(bytes));
        self.group.add(self.metrics.response_bytes, sent);
        if let Some(left) = &mut self.left {
            *left -= sent;
            if *left == 0 {
                self.end(End::Complete);
            }
        }
    }

    /// Counts the end of a response whose body is over. A client that was promised more waits in
    /// vain, or finds the connection broken.
    pub(super) fn body_over(&mut self) {
        let is_whole = self.left.is_none_or(|left| left == 0);
        self.end(if is_whole { End::Complete } else { End::Failed });
    }

    /// Counts the end; has no effect after the first call.
    pub(super) fn end(&mut self, how: End) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let Exchange { group, metrics, begun, .. } = self;
        group.dec(metrics.active);
        group.record_duration(metrics.duration, begun.elapsed());
        if self.failed || how == End::Failed {
            group.inc(metrics.errors);
        } else if how == End::GivenUp {
            group.inc(metrics.aborted);
        }
    }
}

impl Keeper for Exchange {
    fn group(&self) -> Option<&Group> {
        Some(&self.group)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A panic drops a response that has not yet ended.
        self.end(if thread::panicking() { End::Failed } else { End::GivenUp });
    }
}
