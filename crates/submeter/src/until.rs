//! Waits that end when a timer does.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Polls `waits`, and `timer` while that waits. When the timer ends first, `give_up` produces the
/// result.
pub(crate) async fn until<F: Future + Unpin>(
    mut waits: F,
    timer: impl Future,
    give_up: impl Fn(&mut F) -> F::Output,
) -> F::Output {
    let mut timer = pin!(timer);
    poll_fn(|context| match Pin::new(&mut waits).poll(context) {
        Poll::Pending => timer.as_mut().poll(context).map(|_| give_up(&mut waits)),
        ready => ready,
    })
    .await
}
