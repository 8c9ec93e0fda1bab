//! The future of a response that first waits for something, and then holds it until the body ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use submeter::Refusal;
use tower_service::Service;

use super::{AdmittedBody, refused};

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes a timer for each request. The layers have none of their own, so that they need no runtime.
pub(super) type Timer = Arc<dyn Fn() -> Boxed<()> + Send + Sync>;

pub(super) fn timer<T>(timer: impl Fn() -> T + Send + Sync + 'static) -> Timer
where
    T: Future<Output = ()> + Send + 'static,
{
    Arc::new(move || Box::pin(timer()))
}

pin_project! {
    /// The future of a response for which something is held. See
    /// [`AdmissionLayer`](super::AdmissionLayer), [`QuotaLayer`](super::QuotaLayer).
    #[must_use = "a future does nothing unless it is polled"]
    #[project = Projected]
    pub enum HoldingFuture<S, R, F, W, H> {
        #[doc(hidden)]
        Waits { wait: W, call: Option<(S, R)>, until_head: bool },
        // Released after the work that it is held for.
        #[doc(hidden)]
        Runs { #[pin] future: F, held: Option<H>, until_head: bool },
    }
}

impl<S: Service<R> + Clone, R, W, H> HoldingFuture<S, R, S::Future, W, H> {
    /// Calls the service once `wait` has obtained what is to be held; answers its refusal
    /// otherwise. With `until_head`, that is held until the response's head, not its body's end.
    pub(super) fn waits(inner: &mut S, request: R, wait: W, until_head: bool) -> Self {
        // Takes the service that is ready; the clone need not be.
        let next = inner.clone();
        let ready = std::mem::replace(inner, next);
        HoldingFuture::Waits { wait, call: Some((ready, request)), until_head }
    }

    /// Runs without holding anything.
    pub(super) fn runs(future: S::Future) -> Self {
        HoldingFuture::Runs { future, held: None, until_head: false }
    }
}

impl<S, R, A, W, H, E> Future for HoldingFuture<S, R, S::Future, W, H>
where
    S: Service<R, Response = Response<A>>,
    A: Body + From<String>,
    W: Future<Output = Result<H, E>> + Unpin,
    E: Into<Refusal>,
{
    type Output = Result<Response<AdmittedBody<A, H>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Projected::Waits { wait, call, until_head } = self.as_mut().project() {
            match ready!(Pin::new(wait).poll(context)) {
                Ok(held) => {
                    let (mut service, request) = call.take().expect("called once");
                    let (future, until_head) = (service.call(request), *until_head);
                    self.set(HoldingFuture::Runs { future, held: Some(held), until_head });
                }
                Err(error) => {
                    let answer = refused(error).map(A::from);
                    return Poll::Ready(Ok(answer.map(|body| AdmittedBody::new(body, None))));
                }
            }
        }
        let Projected::Runs { future, held, until_head } = self.project() else {
            unreachable!("it no longer waits")
        };
        let response = ready!(future.poll(context))?;
        let held = held.take().filter(|_| !*until_head);
        Poll::Ready(Ok(response.map(|body| AdmittedBody::new(body, held))))
    }
}
