//! Streams in a group.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

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
