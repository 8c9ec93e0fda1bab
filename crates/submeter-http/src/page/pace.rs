//! Ends the connection of a client that reads too slowly.
//!
//! A plain timeout between two writes, as in the crate `tokio-io-timeout`, would let a client that
//! takes one byte every half minute keep one of a few places for as long as it likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may leave bytes waiting, unless it takes this much in that time: 17 KiB/s is
/// slower than any connection over which people look at a page.
const WINDOW: Duration = Duration::from_secs(30);
const WINDOW_BYTES: usize = 512 << 10;

/// A stream whose writes fail when the other end is too slow.
pub(super) struct Paced<S> {
    stream: S,
    pace: Pace,
    /// Wakes the writer when the window ends.
    alarm: Pin<Box<Sleep>>,
}

/// How fast a client takes the bytes that wait for it. The clock stops while nothing waits:
/// otherwise a short rest would restart the window, and a long one would use it up.
#[derive(Debug)]
struct Pace {
    /// How much was taken since the window began.
    taken: usize,
    /// How much of the window is left.
    left: Duration,
    /// The time since which bytes have been waiting.
    since: Option<Instant>,
}

/// The client was too slow.
#[derive(Debug, PartialEq, Eq)]
struct TooSlow;

impl Default for Pace {
    fn default() -> Pace {
        Pace { taken: 0, left: WINDOW, since: None }
    }
}

impl Pace {
    /// Notes that bytes wait, and returns when to check again.
    fn waits(&mut self, now: Instant) -> Result<Instant, TooSlow> {
        self.rests(now);
        if self.left.is_zero() {
            if self.taken < WINDOW_BYTES {
                return Err(TooSlow);
            }
            *self = Pace::default();
        }
        self.since = Some(now);
        Ok(now + self.left)
    }

    fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Notes that no bytes wait any longer.
    fn rests(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(now - since);
        }
    }
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S) -> Paced<S> {
        Paced { stream, pace: Pace::default(), alarm: Box::pin(sleep(WINDOW)) }
    }

    /// Records how a write ended: passes on what was written, and bounds how long the rest may
    /// wait.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = written {
            self.pace.took(done.as_ref().map_or(0, |n| *n));
            return Poll::Ready(done);
        }
        while let Ok(ends) = self.pace.waits(Instant::now()) {
            if self.alarm.deadline() != ends {
                self.alarm.as_mut().reset(ends);
            }
            ready!(self.alarm.as_mut().poll(context));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A flush follows the last write: no bytes wait any longer.
        self.pace.rests(Instant::now());
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// How long a client is served that takes `bytes` every `every`, up to an hour.
    fn lasts(bytes: usize, every: Duration) -> Duration {
        let (began, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut pace = Pace::default();
        let (mut now, mut takes) = (began, began + every);
        while now - began < hour {
            match pace.waits(now) {
                Ok(ends) => now = ends.min(takes),
                Err(TooSlow) => return now - began,
            }
            if now == takes {
                pace.took(bytes);
                takes += every;
            }
        }
        hour
    }

    #[test]
    fn a_byte_at_a_time_is_slow_and_a_poor_line_not() {
        let second = Duration::from_secs(1);
        assert_eq!(lasts(0, 3600 * second), WINDOW, "nothing");
        assert_eq!(lasts(1, 29 * second), WINDOW, "a byte every 29 s");
        assert_eq!(lasts(10 << 10, second), WINDOW, "10 KiB/s");
        assert_eq!(lasts(20 << 10, second), 3600 * second, "20 KiB/s");
    }

    #[test]
    fn a_pause_in_which_nothing_waits_takes_no_time() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(pace.waits(now), Ok(now + WINDOW));
            pace.took(4);
            pace.rests(now);
            now += 10 * WINDOW;
        }
    }

    #[test]
    fn bursts_that_empty_the_buffer_begin_no_window() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        assert_eq!(pace.waits(now), Ok(now + WINDOW));
        now += WINDOW - Duration::from_secs(1);
        pace.took(96 << 10);
        pace.rests(now);
        assert_eq!(pace.waits(now), Ok(now + Duration::from_secs(1)));
        assert_eq!(pace.waits(now + Duration::from_secs(1)), Err(TooSlow));
    }

    #[tokio::test]
    async fn a_write_that_waits_for_too_long_is_an_error() {
        let (near, _far) = duplex(1024);
        let mut paced = Paced::new(near);
        // As if bytes had begun to wait long ago.
        paced.pace.left = Duration::ZERO;
        let error = paced.write_all(&[0; 2048]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
