//! Bodies in a group, and how much of them was transferred.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::layer::Exchange;
use crate::group::Group;
use crate::schema::Counter;
use crate::switch::Grouped;
use crate::unit::Bytes;

impl<B: Body> Body for Grouped<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let (body, _entered) = self.enter();
        body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.value().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.value().size_hint()
    }
}

pin_project! {
    /// The body of a request or of a response that is counted in a group. See
    /// [`MeterLayer`](super::MeterLayer).
    #[derive(Debug)]
    pub struct MeteredBody<B> {
        #[pin]
        body: Grouped<B>,
        bytes: Counter<Bytes>,
        // Of a response that has not ended.
        exchange: Option<Exchange>,
    }
}

impl<B: Body> MeteredBody<B> {
    pub(super) fn of_request(body: B, bytes: Counter<Bytes>, group: Option<Group>) -> Self {
        MeteredBody { body: Grouped::new(body, group), bytes, exchange: None }
    }

    pub(super) fn of_response(
        body: B,
        bytes: Counter<Bytes>,
        exchange: Option<Exchange>,
    ) -> MeteredBody<B> {
        let group = exchange.as_ref().map(|exchange| exchange.group().clone());
        let mut body = MeteredBody { body: Grouped::new(body, group), bytes, exchange };
        // A server need not poll an empty body.
        if is_over(&body.body) {
            Exchange::complete(&mut body.exchange);
        }
        body
    }
}

/// Returns whether nothing more comes: servers do not poll for an end that they can foresee.
fn is_over(body: &impl Body) -> bool {
    body.is_end_stream() || body.size_hint().exact() == Some(0)
}

impl<B: Body> Body for MeteredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.body.as_mut().poll_frame(context));
        match &polled {
            Some(Ok(frame)) => {
                if let (Some(data), Some(group)) = (frame.data_ref(), this.body.group()) {
                    group.add(*this.bytes, data.remaining() as u64);
                }
                if is_over(&*this.body) {
                    Exchange::complete(this.exchange);
                }
            }
            Some(Err(_)) => Exchange::fail(this.exchange),
            None => Exchange::complete(this.exchange),
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
