//! A layer that makes requests wait for their tenant's turn.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use submeter::admission::{Admission, AdmissionError, Admitted, Admitting};
use submeter::switch;
use tower_layer::Layer;
use tower_service::Service;

use super::holding::{self, Boxed, HoldingFuture, Timer};

/// Makes each request wait for a place in a queue that is fair to tenants, in the group in which it
/// is handled, and holds the place until the server has taken the response's body, or its head
/// ([`until_head`](Self::until_head)). Requests that are not admitted get the answer of
/// [`refused`](super::refused).
///
/// **A client that does not read** holds its place while the server takes no more of the body. A
/// body of one frame is taken at once, unless the client has left earlier answers unread; a stream
/// only as fast as the client reads. A few such clients hold all places, and no tenant is served.
/// So give places back `until_head` where handlers have done the work when they answer. Where a
/// body is made as it is sent, and that is work, hold places to its end and have the server end
/// connections to which it could write nothing for some time.
///
/// It belongs inside a [`MeterLayer`](super::MeterLayer), which enters the group, and around
/// whatever does the work. A request in no group passes. The inner service's body must be
/// convertible from a `String`, as those of axum and `Full<Bytes>` are. Costs an admission and a
/// clone of the inner service.
///
/// # Examples
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use submeter::admission::Admission;
/// use submeter_http::AdmissionLayer;
/// use submeter::switch::InGroup;
/// use submeter::{Schema, Tree};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let admission = Admission::builder(1).waiting_max(0).build();
/// let hello = |_| async {
///     Ok::<_, std::io::Error>(Response::new(Full::<bytes::Bytes>::from("hello")))
/// };
/// let layer = AdmissionLayer::new(admission.clone());
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(hello));
/// let ask = || service.clone().oneshot(Request::new(())).in_group(tree.root());
///
/// let answer = ask().await?;
/// assert_eq!((answer.status().as_u16(), admission.in_flight()), (200, 1));
/// assert_eq!(ask().await?.status(), 503); // no other may wait, of whatever tenant
/// drop(answer);
/// assert_eq!(ask().await?.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AdmissionLayer {
    admission: Admission,
    timer: Option<Timer>,
    until_head: bool,
}

impl AdmissionLayer {
    /// Makes a layer from the queue in which requests wait.
    #[must_use]
    pub fn new(admission: Admission) -> AdmissionLayer {
        AdmissionLayer { admission, timer: None, until_head: false }
    }

    /// Lets requests wait for their turn until their timer is ready, at most. `timer` makes one for
    /// each: `wait(|| tokio::time::sleep(Duration::from_secs(1)))`. Costs an allocation.
    #[doc(alias = "deadline")]
    #[doc(alias = "max_wait")]
    #[doc(alias = "timeout")]
    #[must_use]
    pub fn wait<T>(mut self, timer: impl Fn() -> T + Send + Sync + 'static) -> AdmissionLayer
    where
        T: Future<Output = ()> + Send + 'static,
    {
        self.timer = Some(holding::timer(timer));
        self
    }

    /// Gives the place back once the handler has answered, before anything is sent. What the body
    /// does after that is not waited for, and does not count as work in flight.
    #[must_use]
    pub fn until_head(mut self) -> AdmissionLayer {
        self.until_head = true;
        self
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> AdmissionService<S> {
        AdmissionService { inner, layer: self.clone() }
    }
}

/// A service whose requests wait for their turn. See [`AdmissionLayer`].
#[derive(Clone, Debug)]
pub struct AdmissionService<S> {
    inner: S,
    layer: AdmissionLayer,
}

impl<S, B, A> Service<Request<B>> for AdmissionService<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone,
    A: Body + From<String>,
{
    type Response = Response<AdmittedBody<A>>;
    type Error = S::Error;
    type Future = AdmissionFuture<S, Request<B>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(group) = switch::current() else {
            return HoldingFuture::runs(self.inner.call(request));
        };
        let acquire = self.layer.admission.acquire(&group);
        let turn = match &self.layer.timer {
            Some(timer) => Turn::Timed(Box::pin(acquire.until(timer()))),
            None => Turn::Untimed(acquire),
        };
        HoldingFuture::waits(&mut self.inner, request, turn, self.layer.until_head)
    }
}

/// The future of a response that holds a place. See [`AdmissionLayer`].
pub type AdmissionFuture<S, R, F> = HoldingFuture<S, R, F, Turn, Admitted>;

/// A wait for a place.
#[doc(hidden)]
pub enum Turn {
    Untimed(Admitting),
    Timed(Boxed<Result<Admitted, AdmissionError>>),
}

impl Future for Turn {
    type Output = Result<Admitted, AdmissionError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Turn::Untimed(acquire) => Pin::new(acquire).poll(context),
            Turn::Timed(acquire) => acquire.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for AdmissionLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionLayer")
            .field("admission", &self.admission)
            .field("is_timed", &self.timer.is_some())
            .field("until_head", &self.until_head)
            .finish()
    }
}

pin_project! {
    /// The body of a response that holds its place, or something else held for it, until it ends.
    /// See [`AdmissionLayer`], [`QuotaLayer`](super::QuotaLayer).
    #[derive(Debug)]
    pub struct AdmittedBody<B, H = Admitted> {
        #[pin]
        body: B,
        admitted: Option<H>,
    }
}

impl<B: Body, H> AdmittedBody<B, H> {
    pub(super) fn new(body: B, admitted: Option<H>) -> AdmittedBody<B, H> {
        // A server need not poll a body from which it sends nothing.
        let admitted = admitted.filter(|_| !body.is_end_stream());
        AdmittedBody { body, admitted }
    }
}

/// For the answers of layers around this one, which hold nothing.
impl<B: Body + From<String>, H> From<String> for AdmittedBody<B, H> {
    fn from(text: String) -> AdmittedBody<B, H> {
        AdmittedBody::new(text.into(), None)
    }
}

impl<B: Body, H> Body for AdmittedBody<B, H> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.body.as_mut().poll_frame(context));
        // Servers do not poll for an end that they can foresee.
        if !matches!(polled, Some(Ok(_))) || this.body.is_end_stream() {
            *this.admitted = None;
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::pin::pin;
    use std::task::Waker;

    use bytes::Bytes;
    use http::{StatusCode, header};
    use http_body_util::Full;
    use submeter::switch::InGroup;
    use submeter::{Count, Schema, Tree};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::*;
    use crate::{QuotaLayer, RateLayer};

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A place is held to the end of the body; then the next request is admitted.
    #[test]
    fn a_place_is_held_to_the_end_of_the_body() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let admission = Admission::builder(1).waiting_max_by_group(1).build();
        let handler = |request: Request<&'static str>| async move {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(*request.body())))
        };
        let layer = AdmissionLayer::new(admission.clone());
        let service = ServiceBuilder::new().layer(layer).service(service_fn(handler));
        let ask = |text| service.clone().oneshot(Request::new(text)).in_group(tree.root());

        let mut first = pin!(ask("hello"));
        let Poll::Ready(Ok(answer)) = poll(first.as_mut()) else { panic!("there is a place") };
        let mut second = pin!(ask(""));
        assert!(poll(second.as_mut()).is_pending(), "the body is not over");
        let mut third = pin!(ask("third"));
        let Poll::Ready(Ok(refused)) = poll(third.as_mut()) else { panic!("one may wait") };
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");

        let mut body = pin!(answer.into_body());
        let frame = |body: Pin<&mut AdmittedBody<Full<Bytes>>>| {
            body.poll_frame(&mut Context::from_waker(Waker::noop()))
        };
        assert!(matches!(frame(body.as_mut()), Poll::Ready(Some(Ok(_)))));
        let Poll::Ready(Ok(answer)) = poll(second.as_mut()) else { panic!("its turn has come") };
        assert_eq!(admission.in_flight(), 0, "an empty body is over at once");
        drop(answer);

        let mut outside = pin!(service.clone().oneshot(Request::new("in no group")));
        admission.set_limit(0);
        assert!(poll(outside.as_mut()).is_ready(), "it passes");
    }

    /// The client does not read, so that the body is never polled: it holds its place, unless the
    /// place is given back with the head.
    #[test]
    fn an_unread_body_holds_no_place_until_head() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let handler =
            |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
        for (until_head, held) in [(false, 1), (true, 0)] {
            let admission = Admission::new(1);
            let mut layer = AdmissionLayer::new(admission.clone());
            if until_head {
                layer = layer.until_head();
            }
            let service = ServiceBuilder::new().layer(layer).service(service_fn(handler));
            let mut asks = pin!(service.oneshot(Request::new(())).in_group(tree.root()));
            let Poll::Ready(Ok(unread)) = poll(asks.as_mut()) else { panic!("there is a place") };
            assert_eq!(admission.in_flight(), held);
            drop(unread);
            assert_eq!(admission.in_flight(), 0);
        }
    }

    /// A request gets an answer if it waited too long, or if its tenant was killed.
    #[test]
    fn late_requests_and_killed_tenants_are_told() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        let handler =
            |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
        let layer = AdmissionLayer::new(Admission::new(0)).wait(|| ready(()));
        let service = ServiceBuilder::new().layer(layer).service(service_fn(handler));
        for (kill, status) in [(false, 503), (true, 410)] {
            if kill {
                web.kill().expect("alive");
            }
            let mut asks = pin!(service.clone().oneshot(Request::new(())).in_group(&web));
            let Poll::Ready(Ok(answer)) = poll(asks.as_mut()) else { panic!("no time to wait") };
            assert_eq!(answer.status().as_u16(), status);
        }
    }

    /// Nothing ends and nobody else comes: the timer alone wakes a request that waits.
    #[tokio::test]
    async fn a_timer_ends_a_wait_beside_no_other_traffic() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let handler = |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
        let (admission, ms) = (Admission::new(1), std::time::Duration::from_millis(1));
        let _busy = admission.try_acquire(tree.root()).expect("free");
        let layer = AdmissionLayer::new(admission).wait(move || tokio::time::sleep(ms));
        let service = ServiceBuilder::new().layer(layer).service(service_fn(handler));
        let answer = service.oneshot(Request::new(())).in_group(tree.root()).await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    /// Each layer can answer for itself around those whose bodies hold something.
    #[tokio::test]
    async fn layers_that_refuse_stack_in_any_order() {
        let mut schema = Schema::builder();
        let limit = schema.rate_limit("requests", "Requests let in");
        let in_flight = schema.quota::<Count>("in_flight", "Requests under way");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let handler = |_| async { Ok::<_, Infallible>(Response::new(String::from("served"))) };
        let (rate, quota) = (RateLayer::new(limit), QuotaLayer::new(in_flight, 1));
        let queue = AdmissionLayer::new(Admission::new(1));
        let one = ServiceBuilder::new().layer(rate).layer(quota.clone()).layer(queue.clone());
        let other = ServiceBuilder::new().layer(queue).layer(quota).layer(rate);
        let ask = || Request::new(());
        for (limit, status) in [(None, 200), (Some(0), 429)] {
            tree.root().set_limit(in_flight, limit);
            let one = one.clone().service(service_fn(handler)).oneshot(ask());
            let other = other.clone().service(service_fn(handler)).oneshot(ask());
            let answer = one.in_group(tree.root()).await.expect("an answer");
            assert_eq!(answer.status().as_u16(), status);
            drop(answer);
            let answer = other.in_group(tree.root()).await.expect("an answer");
            assert_eq!(answer.status().as_u16(), status);
        }
    }
}
