//! The layer, its service, and the life of one exchange of request and response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Instant;

use http::{Method, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{HttpMetrics, MeteredBody};
use crate::group::Group;
use crate::switch::Grouped;

/// Handles and counts each request in the group that a function finds for it.
///
/// The function runs for each request, so that it should be a lookup and a clone. A request for
/// which it finds none is handled outside of all groups, uncounted. The layer should be the
/// outermost one: what is outside of it belongs to no group.
///
/// Costs two switches for each poll, and seven updates for each request.
///
/// # Examples
/// See the [module](super).
#[derive(Clone, Copy, Debug)]
pub struct MeterLayer<R> {
    metrics: HttpMetrics,
    resolve: R,
}

impl<R> MeterLayer<R> {
    /// Makes a layer of the metrics and the function that finds a request's group.
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
        let exchange = group.as_ref().map(|group| Exchange::begin(group, metrics));
        if let Some(group) = &group {
            request.extensions_mut().insert(group.clone());
        }
        let without_body = *request.method() == Method::HEAD;
        let future = {
            let _entered = group.as_ref().map(Group::enter);
            let bytes = metrics.request_bytes;
            let body = |body| MeteredBody::of_request(body, bytes, group.clone());
            self.inner.call(request.map(body))
        };
        MeterFuture { future: Grouped::new(future, group), metrics, exchange, without_body }
    }
}

pin_project! {
    /// The future of a response that is counted in a group. See [`MeterLayer`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct MeterFuture<F> {
        #[pin]
        future: Grouped<F>,
        metrics: HttpMetrics,
        exchange: Option<Exchange>,
        without_body: bool,
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
        let response = match ready!(this.future.poll(context)) {
            Ok(response) => response,
            Err(error) => {
                Exchange::fail(this.exchange);
                return Poll::Ready(Err(error));
            }
        };
        if response.status().is_server_error()
            && let Some(exchange) = this.exchange
        {
            exchange.failed = true;
        }
        if *this.without_body {
            Exchange::complete(this.exchange);
        }
        let (bytes, exchange) = (this.metrics.response_bytes, this.exchange.take());
        Poll::Ready(Ok(response.map(|body| MeteredBody::of_response(body, bytes, exchange))))
    }
}

/// A request and its response. Counts them as ended when it is dropped.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Group,
    metrics: HttpMetrics,
    begun: Instant,
    failed: bool,
    /// Whether the response came to its end, rather than being given up.
    ended: bool,
}

impl Exchange {
    fn begin(group: &Group, metrics: HttpMetrics) -> Exchange {
        group.inc(metrics.requests);
        group.inc(metrics.active);
        let begun = Instant::now();
        Exchange { group: group.clone(), metrics, begun, failed: false, ended: false }
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn complete(exchange: &mut Option<Exchange>) {
        if let Some(mut exchange) = exchange.take() {
            exchange.ended = true;
        }
    }

    pub(super) fn fail(exchange: &mut Option<Exchange>) {
        if let Some(mut exchange) = exchange.take() {
            exchange.failed = true;
            exchange.ended = true;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Exchange { group, metrics, begun, .. } = self;
        group.dec(metrics.active);
        group.record_duration(metrics.duration, begun.elapsed());
        // A panic drops a response that has not ended.
        if self.failed || (!self.ended && thread::panicking()) {
            group.inc(metrics.errors);
        } else if !self.ended {
            group.inc(metrics.aborted);
        }
    }
}
