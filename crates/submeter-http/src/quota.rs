//! A layer that holds part of a quota for each request.

use std::fmt;
use std::future::ready;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use submeter::unit::Unit;
use submeter::{Charge, LimitError, Quota, switch};
use tower_layer::Layer;
use tower_service::Service;

use super::AdmittedBody;
use super::holding::{self, Boxed, HoldingFuture, Timer};

/// Charges a quota for each request, in the group in which it is handled, and holds the charge
/// until the response's body ends: with an amount of 1, it limits requests in flight. Requests
/// without room get the answer of [`refused`](super::refused).
///
/// It belongs inside a [`MeterLayer`](super::MeterLayer), which enters the group. A request in no
/// group passes. The inner service's body must be convertible from a `String`, as those of axum and
/// `Full<Bytes>` are. Costs a charge, an allocation, and a clone of the inner service.
///
/// Requests wait in the order of arrival, whichever tenant they belong to. For turns that are fair
/// to tenants, see [`AdmissionLayer`](super::AdmissionLayer). A client that does not read its
/// answer keeps the charge: give each tenant a limit of its own, below what is shared.
///
/// # Examples
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use submeter::switch::InGroup;
/// use submeter::{Count, Schema, Tree};
/// use submeter_http::QuotaLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut schema = Schema::builder();
/// let in_flight = schema.quota::<Count>("in_flight", "Requests in flight");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(in_flight, Some(1));
///
/// let hello = |_| async { Ok::<_, std::io::Error>(Response::new(Full::<Bytes>::from("hello"))) };
/// let service = ServiceBuilder::new().layer(QuotaLayer::new(in_flight, 1));
/// let service = service.service(service_fn(hello));
/// let ask = || service.clone().oneshot(Request::new(())).in_group(tree.root());
/// let answer = ask().await?;
/// assert_eq!((answer.status().as_u16(), ask().await?.status().as_u16()), (200, 429));
/// drop(answer);
/// assert_eq!(ask().await?.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct QuotaLayer<U: Unit> {
    quota: Quota<U>,
    n: u64,
    timer: Option<Timer>,
}

impl<U: Unit> QuotaLayer<U> {
    /// Makes a layer that charges `n` for each request, and refuses at once if there is no room.
    pub fn new(quota: Quota<U>, n: u64) -> QuotaLayer<U> {
        QuotaLayer { quota, n, timer: None }
    }

    /// Lets requests wait for room until their timer is ready. `timer` makes one for each: `wait(||
    /// tokio::time::sleep(Duration::from_secs(1)))`.
    #[must_use]
    pub fn wait<T>(mut self, timer: impl Fn() -> T + Send + Sync + 'static) -> QuotaLayer<U>
    where
        T: Future<Output = ()> + Send + 'static,
    {
        self.timer = Some(holding::timer(timer));
        self
    }
}

impl<S, U: Unit> Layer<S> for QuotaLayer<U> {
    type Service = QuotaService<S, U>;

    fn layer(&self, inner: S) -> QuotaService<S, U> {
        QuotaService { inner, layer: self.clone() }
    }
}

/// A service whose requests hold part of a quota. See [`QuotaLayer`].
#[derive(Clone, Debug)]
pub struct QuotaService<S, U: Unit> {
    inner: S,
    layer: QuotaLayer<U>,
}

impl<S, B, A, U: Unit> Service<Request<B>> for QuotaService<S, U>
where
    S: Service<Request<B>, Response = Response<A>> + Clone,
    A: Body + From<String>,
{
    type Response = Response<AdmittedBody<A, Charge>>;
    type Error = S::Error;
    type Future = QuotaFuture<S, Request<B>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(group) = switch::current() else {
            return HoldingFuture::runs(self.inner.call(request));
        };
        let QuotaLayer { quota, n, ref timer } = self.layer;
        let charging: Boxed<Result<Charge, LimitError>> = match timer {
            Some(timer) => Box::pin(group.charge(quota, n).until(timer())),
            None => Box::pin(ready(group.try_charge(quota, n))),
        };
        HoldingFuture::waits(&mut self.inner, request, charging, false)
    }
}

/// The future of a response for which a charge is held. See [`QuotaLayer`].
pub type QuotaFuture<S, R, F> = HoldingFuture<S, R, F, Boxed<Result<Charge, LimitError>>, Charge>;

impl<U: Unit> fmt::Debug for QuotaLayer<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaLayer { n, timer, .. } = self;
        write!(f, "QuotaLayer({n}, {})", if timer.is_some() { "waits" } else { "at once" })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::pin::{Pin, pin};
    use std::task::Waker;

    use bytes::Bytes;
    use http_body_util::Full;
    use submeter::switch::InGroup;
    use submeter::{Count, Schema, Tree};
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A waiting request continues when the body before it ends, but not after its deadline.
    #[test]
    fn a_waiting_request_goes_on_in_its_time() {
        let mut schema = Schema::builder();
        let in_flight = schema.quota::<Count>("in_flight", "Requests in flight");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        tree.root().set_limit(in_flight, Some(1));
        let hello = |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
        let layer = QuotaLayer::new(in_flight, 1);
        let patient = ServiceBuilder::new().layer(layer.clone().wait(pending)).service_fn(hello);
        let late = ServiceBuilder::new().layer(layer.wait(|| ready(()))).service_fn(hello);

        let mut first = pin!(patient.clone().oneshot(Request::new(())).in_group(tree.root()));
        let Poll::Ready(Ok(answer)) = poll(first.as_mut()) else { panic!("there is room") };
        let mut second = pin!(patient.oneshot(Request::new(())).in_group(tree.root()));
        assert!(poll(second.as_mut()).is_pending(), "the body is not over");
        let mut third = pin!(late.oneshot(Request::new(())).in_group(tree.root()));
        let Poll::Ready(Ok(refused)) = poll(third.as_mut()) else { panic!("its time is over") };
        assert_eq!(refused.status().as_u16(), 429);
        let mut body = pin!(answer.into_body());
        let frame = body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
        let Poll::Ready(Ok(answer)) = poll(second.as_mut()) else { panic!("there is room again") };
        assert_eq!((answer.status().as_u16(), tree.root().usage(in_flight).current), (200, 1));
        drop(answer);
        assert_eq!(tree.root().usage(in_flight).current, 0);
    }
}
