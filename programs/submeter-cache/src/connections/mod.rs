//! The open connections: how many there may be, how long each has waited for its client, and how
//! much memory they hold together.
//!
//! A connection records what it waits for in its [`ConnectionState`], with one store per batch of
//! requests. There are no timers. The server scans all seats a few times a second instead, because
//! a timer for each wait would cost every batch a lock shared by all connections.

mod buffer_room;
mod listing;
mod places;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use submeter::{Count, Group, Quota};
use tokio::task::AbortHandle;

use crate::config::Config;
use crate::metrics::Metrics;

pub(crate) use buffer_room::BufferHold;
use buffer_room::{BufferRoom, Share};
pub(crate) use listing::{Ends, Listener};
pub use places::ConnectionPlaces;
use places::Places;
pub(crate) use places::{Place, Unwelcome};

/// A request or an answer has an extra second for each of these bytes: a large one may take longer
/// on a slow line.
const RATE_MIN_BYTES: u64 = 64 << 10;

/// The connections of a cache.
pub(crate) struct Connections {
    places: Mutex<Places>,
    listening: Mutex<Vec<Listener>>,
    room: BufferRoom,
    root: Group,
    /// The quota that places are charged to: its bound covers everything that is held.
    quota: Quota<Count>,
    most: usize,
    login_timeout_ms: u64,
    request_timeout_ms: u64,
    idle_timeout_ms: Option<u64>,
    counts: Counts,
}

/// How many connections ended for which reason; all are statistics.
#[derive(Debug, Default)]
struct Counts {
    refused: AtomicU64,
    idle: AtomicU64,
    slow: AtomicU64,
    reclaimed: AtomicU64,
    stops: AtomicU64,
    stopped_us: AtomicU64,
}

/// The figures of `stats` about connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    pub(crate) current: usize,
    pub(crate) total: u64,
    /// Connections that have not identified themselves yet.
    pub(crate) strangers: usize,
    /// Connections turned away because the maximum was open, or because a user had as many as the
    /// others leave it.
    pub(crate) refused: u64,
    /// Connections closed because they did not identify themselves in time, or because others
    /// needed their place.
    pub(crate) ended_strangers: u64,
    /// Connections closed after the idle timeout.
    pub(crate) idle: u64,
    /// Connections closed because a request was not completed, or an answer not taken, in time.
    pub(crate) slow: u64,
    /// Connections closed to free the memory that they held.
    pub(crate) reclaimed: u64,
    /// How often the server accepted no connections for a while because the system had no room for
    /// more.
    pub(crate) stops: u64,
    /// Total time of these pauses.
    pub(crate) stopped_us: u64,
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The next request.
    Idle = 0,
    /// The rest of a request.
    Reading = 1,
    /// The client, which has not taken its answers.
    Sending = 2,
}

/// The public state of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// The phase in the low two bits; above them the time of its start, on the store's clock in ms.
    state: AtomicU64,
    /// Bytes held beyond what every connection may have.
    held: AtomicU64,
    /// When it received the first of them, on the same clock.
    given_ms: AtomicU64,
    task: OnceLock<AbortHandle>,
    ends: OnceLock<Ends>,
    /// Its user's share of the buffers, if there are several users.
    share: OnceLock<Arc<Share>>,
}

impl ConnectionState {
    /// Records what the connection waits for from now on.
    pub(crate) fn enter(&self, phase: Phase, now_ms: u64) {
        // Relaxed: readers decide by its value alone.
        self.state.store(now_ms << 2 | phase as u64, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().0
    }

    /// Records the two ends of the connection.
    pub(crate) fn set_ends(&self, ends: Ends) {
        // A seat is taken by one connection only.
        let _ = self.ends.set(ends);
    }

    /// Gives the server the means to end the connection.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        // A seat is taken by one task only.
        let _ = self.task.set(task);
    }

    fn state(&self) -> (Phase, u64) {
        // Relaxed: this decides by its value alone.
        let state = self.state.load(Ordering::Relaxed);
        let phase = match state & 3 {
            1 => Phase::Reading,
            2 => Phase::Sending,
            _ => Phase::Idle,
        };
        (phase, state >> 2)
    }

    fn held(&self) -> u64 {
        // Relaxed: a hint for choosing the connection to end.
        self.held.load(Ordering::Relaxed)
    }

    fn set_held(&self, bytes: u64) {
        // Relaxed: as in `held`.
        self.held.store(bytes, Ordering::Relaxed);
    }

    fn set_given(&self, now_ms: u64) {
        // Relaxed: as in `held`.
        self.given_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns since when it has made no use of what it holds. Time spent waiting for room does not
    /// count, nor does anything before the latest request that it completed.
    fn stalled_since_ms(&self) -> u64 {
        // Relaxed: as in `held`.
        self.state().1.max(self.given_ms.load(Ordering::Relaxed))
    }

    /// Returns whether there is a task to end.
    fn can_end(&self) -> bool {
        self.task.get().is_some()
    }

    /// Names the client.
    pub(crate) fn client(&self) -> &str {
        self.ends.get().map_or("", |ends| &ends.client)
    }

    /// Names the machine of the client, as far as it has a name.
    fn host(&self) -> String {
        let client = self.client();
        client.rsplit_once(':').map_or(client, |(host, _)| host).to_owned()
    }

    /// Ends the connection. Its task is dropped where it waits, with everything that it holds.
    fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Connections {
    pub(crate) fn new(config: &Config, metrics: &Metrics, root: Group) -> Connections {
        root.set_limit(metrics.buffers, Some(config.buffers_max));
        root.set_limit(metrics.connections, Some(config.connections_max as u64));
        Connections {
            places: Mutex::default(),
            listening: Mutex::default(),
            room: BufferRoom::new(root.clone(), metrics.buffers),
            root,
            quota: metrics.connections,
            most: config.connections_max,
            login_timeout_ms: millis(config.login_timeout),
            request_timeout_ms: millis(config.request_timeout),
            idle_timeout_ms: config.idle_timeout.map(millis),
            counts: Counts::default(),
        }
    }

    /// Records how long the pause lasts.
    pub(crate) fn note_pause(&self, pause: Duration) {
        let us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        // Relaxed: a statistic.
        self.counts.stopped_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Records that the server accepts no connections for a while.
    pub(crate) fn note_stop(&self) {
        // Relaxed: a statistic.
        self.counts.stops.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        // Relaxed: a statistic.
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let places = self.places.lock();
        ConnectionCounts {
            current: places.taken.len(),
            total: places.total,
            strangers: places.strangers(),
            refused: count(&self.counts.refused),
            ended_strangers: places.ended_strangers,
            idle: count(&self.counts.idle),
            slow: count(&self.counts.slow),
            reclaimed: count(&self.counts.reclaimed),
            stops: count(&self.counts.stops),
            stopped_us: count(&self.counts.stopped_us),
        }
    }

    /// Ends the connections whose time is over.
    pub(crate) fn end_overdue(&self, now_ms: u64) {
        self.end_strangers(now_ms);
        for places::Taken { seat, .. } in self.places.lock().taken.values() {
            let (phase, since_ms) = seat.state();
            let waited_ms = now_ms.saturating_sub(since_ms);
            let (limit_ms, count) = match phase {
                Phase::Idle => (self.idle_timeout_ms, &self.counts.idle),
                Phase::Reading | Phase::Sending => {
                    let size_ms = seat.held().saturating_mul(1000) / RATE_MIN_BYTES;
                    (Some(self.request_timeout_ms.saturating_add(size_ms)), &self.counts.slow)
                }
            };
            if limit_ms.is_some_and(|limit_ms| waited_ms >= limit_ms) {
                seat.end();
                // It is found again if it has not ended by the next look.
                seat.enter(phase, now_ms);
                // Relaxed: a statistic.
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the connection that has held memory for its client for the longest time, if that is at
    /// least `stalled_ms`: one of all or, with a share, of that user's.
    fn reclaim(
        &self,
        except: &ConnectionState,
        of: Option<&Arc<Share>>,
        now_ms: u64,
        stalled_ms: u64,
    ) {
        let places = self.places.lock();
        let seats = places.taken.values().map(|taken| &taken.seat).filter(|seat| {
            let theirs = |of| seat.share.get().is_some_and(|share| Arc::ptr_eq(share, of));
            of.is_none_or(theirs)
        });
        let stalled = seats.filter(|seat| {
            let waited_ms = now_ms.saturating_sub(seat.stalled_since_ms());
            seat.held() > 0 && waited_ms >= stalled_ms && !std::ptr::eq(&***seat, except)
        });
        if let Some(seat) = stalled.min_by_key(|seat| seat.stalled_since_ms()) {
            seat.end();
            // Its bytes are as good as free; the next look must find another connection.
            seat.set_held(0);
            // Relaxed: a statistic.
            self.counts.reclaimed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
