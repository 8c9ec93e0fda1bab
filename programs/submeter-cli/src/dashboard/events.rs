//! The stream of events: everything once, then what changed each second.
//!
//! Each client has a place in one bounded queue. One that does not keep up is never waited for: it
//! loses its place, and when it reads again it gets the whole tree instead of what it missed.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::sampler::{Sampler, Tick};

/// After how long a page asks again when the server has gone.
const RETRY: Duration = Duration::from_secs(1);

struct Place {
    sampler: Sampler,
    receiver: Receiver<Tick>,
    /// The number of the sample that the client has, or `None` if it needs everything.
    has: Option<u64>,
}

/// Streams events until the server ends.
pub(super) fn stream(sampler: Sampler) -> impl Stream<Item = Result<Event, Infallible>> {
    let place = sampler.subscribe().map(|receiver| Place { sampler, receiver, has: None });
    stream::unfold(place, |place| async move {
        let mut place = place?;
        let event = place.next().await?;
        Some((Ok(event), Some(place)))
    })
}

impl Place {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let Some(has) = self.has else {
                let (number, full) = self.sampler.work(Sampler::full).await;
                self.has = Some(number);
                return Some(Event::default().event("full").retry(RETRY).data(&*full));
            };
            match self.receiver.recv().await {
                // Sent between joining and the full event, which includes it.
                Ok(tick) if tick.number <= has => {}
                Ok(tick) => return Some(Event::default().event("tick").data(&*tick.json)),
                Err(RecvError::Lagged(_)) => {
                    // The rest of the queue is older than what it is sent now; left there, it would
                    // make the client fall behind again at the next event.
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
    use submeter_cache::{Address, Cache, Config};

    use super::super::ServerInfo;
    use super::*;

    #[tokio::test]
    async fn who_falls_behind_is_sent_everything_and_then_what_follows() {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let sampler =
            Sampler::new(cache, ServerInfo::new(Address::Tcp(([127, 0, 0, 1], 1).into())));
        let receiver = sampler.subscribe().expect("not closed");
        let mut place = Place { sampler: sampler.clone(), receiver, has: None };
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
