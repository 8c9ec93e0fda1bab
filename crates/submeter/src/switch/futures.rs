//! Streams and sinks in a group.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_sink::Sink;

use super::Grouped;

impl<S: Stream> Stream for Grouped<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let (stream, _entered) = self.enter();
        stream.poll_next(context)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.value().size_hint()
    }
}

impl<S: Sink<I>, I> Sink<I> for Grouped<S> {
    type Error = S::Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let (sink, _entered) = self.enter();
        sink.poll_ready(context)
    }

    fn start_send(self: Pin<&mut Self>, item: I) -> Result<(), S::Error> {
        let (sink, _entered) = self.enter();
        sink.start_send(item)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let (sink, _entered) = self.enter();
        sink.poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let (sink, _entered) = self.enter();
        sink.poll_close(context)
    }
}
