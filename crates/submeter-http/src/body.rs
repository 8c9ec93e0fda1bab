//! Bodies in a group, and the bytes transferred of them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use submeter::switch::{InGroupOf, Keeper};
use submeter::{Bytes, Counter, Group};

use super::meter::{End, Exchange};

pin_project! {
    /// The body of a request or of a response that is counted in a group. See
    /// [`MeterLayer`](super::MeterLayer).
    #[derive(Debug)]
    pub struct MeteredBody<B> {
        #[pin]
        body: InGroupOf<B, Meter>,
    }
}

/// Counts a body in the group that it belongs to.
#[derive(Debug)]
pub(super) enum Meter {
    OfNobody,
    Request(Group, Counter<Bytes>),
    Response(Exchange),
}

impl Keeper for Meter {
    fn group(&self) -> Option<&Group> {
        match self {
            Meter::OfNobody => None,
            Meter::Request(group, _) => Some(group),
            Meter::Response(exchange) => Some(exchange.group()),
        }
    }
}

impl Meter {
    fn count(&mut self, bytes: u64) {
        match self {
            Meter::OfNobody => {}
            Meter::Request(group, counter) => group.add(*counter, bytes),
            Meter::Response(exchange) => exchange.sent(bytes),
        }
    }

    fn over(&mut self) {
        if let Meter::Response(exchange) = self {
            exchange.body_over();
        }
    }

    fn failed(&mut self) {
        if let Meter::Response(exchange) = self {
            exchange.end(End::Failed);
        }
    }
}

impl<B: Body> MeteredBody<B> {
    pub(super) fn of_request(body: B, group: Option<&Group>, bytes: Counter<Bytes>) -> Self {
        let meter = group.map_or(Meter::OfNobody, |group| Meter::Request(group.clone(), bytes));
        MeteredBody { body: InGroupOf::new(body, meter) }
    }

    pub(super) fn of_response(body: B, exchange: Option<Exchange>) -> MeteredBody<B> {
        let meter = exchange.map_or(Meter::OfNobody, Meter::Response);
        MeteredBody { body: InGroupOf::new(body, meter) }
    }
}

impl<B: Body> Body for MeteredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let (mut body, meter, _entered) = self.project().body.enter();
        let Some(polled) = body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let polled = ready!(polled.poll_frame(context));
        match &polled {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    meter.count(data.remaining() as u64);
                }
                // Servers do not poll for an end that they can foresee.
                if frame.is_trailers() {
                    meter.over();
                }
            }
            Some(Err(_)) => meter.failed(),
            None => {}
        }
        // Not once all promised bytes are there: trailers may follow them.
        if polled.is_none() || body.as_ref().get_ref().as_ref().is_some_and(Body::is_end_stream) {
            meter.over();
            body.set(None);
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.value().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.value().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
