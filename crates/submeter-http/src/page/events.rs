//! The stream of events: everything once, then what changed each second.
//!
//! Each client has a place in one bounded queue. A client that does not keep up is never waited
//! for: it loses its place, and when it reads again it gets the whole tree instead of what it
//! missed. When the tree has more metrics than before, all clients get the whole tree.

use std::sync::Arc;

use axum::body::Bytes;
use futures_util::Stream;
use futures_util::stream;
use submeter_documents::{Document, WithdrawnError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::sampler::{Sampler, Tick};

/// A client in the middle of a document.
struct Reading {
    document: Arc<Document>,
    at: usize,
}

impl Reading {
    fn new(document: Arc<Document>) -> Reading {
        Reading { document, at: 0 }
    }

    /// Returns the next part; `None` at the end.
    fn part(&mut self) -> Result<Option<Bytes>, WithdrawnError> {
        let part = self.document.part(self.at)?;
        self.at += part.len();
        Ok((!part.is_empty()).then_some(part))
    }
}

/// Streams a document.
pub(super) fn parts(document: Arc<Document>) -> impl Stream<Item = Result<Bytes, WithdrawnError>> {
    stream::unfold(Reading::new(document), |mut reading| async move {
        let part = reading.part().transpose()?;
        Some((part, reading))
    })
}

struct Cursor {
    sampler: Sampler,
    receiver: Receiver<Tick>,
    /// The number of the sample that the client has, or `None` if the client needs everything.
    has: Option<u64>,
    /// The event that is being sent.
    event: Option<Reading>,
}

/// Streams events until the server ends, or an event is withdrawn from a slow client.
pub(super) fn stream(sampler: Sampler) -> impl Stream<Item = Result<Bytes, WithdrawnError>> {
    let place =
        sampler.subscribe().map(|receiver| Cursor { sampler, receiver, has: None, event: None });
    stream::unfold(place, |place| async move {
        let mut place = place?;
        let part = place.part().await?;
        Some((part, Some(place)))
    })
}

impl Cursor {
    async fn part(&mut self) -> Option<Result<Bytes, WithdrawnError>> {
        loop {
            if let Some(event) = &mut self.event
                && let Some(part) = event.part().transpose()
            {
                return Some(part);
            }
            self.event = None;
            self.event = Some(Reading::new(self.next().await?));
        }
    }

    async fn next(&mut self) -> Option<Arc<Document>> {
        loop {
            let Some(has) = self.has else {
                let (number, full) = self.sampler.work(Sampler::full).await;
                self.has = Some(number);
                return Some(full);
            };
            match self.receiver.recv().await {
                // Sent between joining and the full event, which includes it.
                Ok(tick) if tick.number <= has => {}
                Ok(Tick { event: Some(event), .. }) => return Some(event),
                Ok(Tick { event: None, .. }) => self.has = None,
                Err(RecvError::Lagged(_)) => {
                    // The rest of the queue is older than the full event; left there, it would make
                    // the client fall behind again at the next event.
                    self.receiver = self.receiver.resubscribe();
                    self.has = None;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::Program;

    /// A reader that falls behind is sent everything, and then the events that follow.
    #[tokio::test]
    async fn who_falls_behind_is_sent_everything_again() {
        let sampler = Sampler::new(Program::new().shown());
        let receiver = sampler.subscribe().expect("not closed");
        let mut place = Cursor { sampler: sampler.clone(), receiver, has: None, event: None };
        assert!(place.next().await.is_some(), "everything");
        assert_eq!(place.has, Some(1));

        // More than the queue holds: the first of them are lost to this client.
        for _ in 0..20 {
            sampler.tick();
        }
        assert!(place.next().await.is_some(), "everything again");
        assert_eq!(place.has, Some(21));

        sampler.tick();
        assert!(place.next().await.is_some(), "what changed");
        assert_eq!(place.has, Some(21));
        assert!(place.receiver.is_empty());

        sampler.close();
        assert!(place.next().await.is_none());
        assert!(sampler.subscribe().is_none());
    }
}
