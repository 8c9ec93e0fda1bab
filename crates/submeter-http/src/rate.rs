//! A layer that refuses requests that exceed a rate.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pin_project_lite::pin_project;
use submeter::{Count, RateLimit, switch};
use tower_layer::Layer;
use tower_service::Service;

use super::refused;

/// Takes one of a rate limit for each request, in the group in which it is handled. Requests that
/// exceed the rate get the answer of [`refused`].
///
/// It belongs inside a [`MeterLayer`](super::MeterLayer), which enters the group and also counts
/// refused requests. A request in no group passes. The inner service's body must be convertible
/// from a `String`, as those of axum and `Full<Bytes>` are.
///
/// Costs a take ([`Group::try_take`](submeter::Group::try_take)) for each request.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use submeter_http::RateLayer;
/// use submeter::switch::InGroup;
/// use submeter::{Rate, Schema, Tree};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut schema = Schema::builder();
/// let requests = schema.rate_limit("requests", "Requests let in");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_rate(requests, Some(Rate::new(1, Duration::from_secs(60))))?;
///
/// let hello = |_| async { Ok::<_, std::io::Error>(Response::new(String::from("hello"))) };
/// let service = ServiceBuilder::new().layer(RateLayer::new(requests)).service(service_fn(hello));
/// for status in [200, 429] {
///     // A future that calls the service when it is first polled, which is in the group.
///     let answer = service.clone().oneshot(Request::new(())).in_group(tree.root()).await?;
///     assert_eq!(answer.status(), status);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RateLayer {
    limit: RateLimit<Count>,
}

impl RateLayer {
    /// Makes a layer from the rate limit from which each request takes one.
    pub fn new(limit: RateLimit<Count>) -> RateLayer {
        RateLayer { limit }
    }
}

impl<S> Layer<S> for RateLayer {
    type Service = RateService<S>;

    fn layer(&self, inner: S) -> RateService<S> {
        RateService { inner, limit: self.limit }
    }
}

/// A service whose requests are held to a rate. See [`RateLayer`].
#[derive(Clone, Copy, Debug)]
pub struct RateService<S> {
    inner: S,
    limit: RateLimit<Count>,
}

impl<S, B, A> Service<Request<B>> for RateService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    A: From<String>,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = RateFuture<S::Future, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let taken = switch::current().map_or(Ok(()), |group| group.try_take(self.limit, 1));
        match taken {
            Ok(()) => RateFuture::Granted { future: self.inner.call(request) },
            Err(error) => RateFuture::Refused { response: Some(refused(error).map(A::from)) },
        }
    }
}

pin_project! {
    /// The future of a response, or of a refusal. See [`RateLayer`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    #[project = Projected]
    pub enum RateFuture<F, A> {
        #[doc(hidden)]
        Granted { #[pin] future: F },
        #[doc(hidden)]
        Refused { response: Option<Response<A>> },
    }
}

impl<F, A, E> Future for RateFuture<F, A>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<A>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            Projected::Granted { future } => future.poll(context),
            Projected::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("not polled again once it is ready")))
            }
        }
    }
}
