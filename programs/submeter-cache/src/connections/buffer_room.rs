//! The memory that connections hold while they wait for their clients, bounded for all connections
//! together.
//!
//! Whole requests that fit into the usual buffers need no room: a server whose clients send whole
//! requests and read their answers never gets here. What a connection holds beyond that is charged
//! to the root's quota `buffers`. It is charged before it grows, and to no tenant: a tenant that is
//! being deleted must not wait for a client that never ends its request.
//!
//! *Without room* a connection waits in order of arrival, as a sender waits for a TCP peer's
//! window. It requests the room for a value as a whole, before it holds any of it, so that two
//! uploads cannot wait for each other. A `get` of a large value does the same if others wait: a
//! value that is evicted in the meantime is in no tenant's account. While a connection waits, the
//! server closes the one that has held room for the longest time, if that is longer than
//! [`STALLED`]. Two alternatives were rejected. Refusing the latest request would let a few clients
//! that never end theirs keep all others out; closing connections that have held room only for a
//! moment would punish a burst.
//!
//! Among several users, one may hold as much as nobody holds, times [`PART`], as of places. What
//! it wants beyond that waits for its own connections, in an order of its own, and holds up nobody
//! else. Only what is within its part waits with the others. A connection that is its user's only
//! holder is always within: its request must fit at some time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use submeter::{Bytes, Charge, Group, Quota};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::{ConnectionState, Connections, Place, millis};
use crate::clock::Clock;
use crate::server::BUFFER_BYTES;

/// A user may have this many times the places that no user has: seven eighths of all at most.
pub(super) const PART: usize = 7;

/// How long a connection that holds memory may wait for its client while others need the memory.
const STALLED: Duration = Duration::from_secs(1);

/// Interval between two attempts to get room.
const LOOK: Duration = Duration::from_millis(10);

/// The state that all holders share.
pub(super) struct BufferRoom {
    root: Group,
    quota: Quota<Bytes>,
    /// The turn to look for room: first come, first served.
    turn: Mutex<()>,
    /// Number of connections that wait for room. While there are any, no other connection passes
    /// them.
    waiting: AtomicUsize,
}

/// What the connections of one user hold, where there are several users.
#[derive(Debug, Default)]
pub(super) struct Share {
    held: AtomicU64,
    /// The user's turn to ask for more.
    turn: Mutex<()>,
}

/// The bytes that one connection holds.
pub(crate) struct BufferHold {
    connections: Arc<Connections>,
    seat: Arc<ConnectionState>,
    charge: Option<Charge>,
    /// The share that the charge is part of. Set when the connection begins to hold something, as a
    /// client logs in later than it connects.
    share: Option<Arc<Share>>,
}

struct Waiting<'a>(&'a AtomicUsize);

impl BufferRoom {
    pub(super) fn new(root: Group, quota: Quota<Bytes>) -> BufferRoom {
        BufferRoom { root, quota, turn: Mutex::new(()), waiting: AtomicUsize::new(0) }
    }
}

impl Connections {
    /// Returns whether that many bytes need room before they are held for a client: they exceed
    /// what every connection may have without asking, and others wait for room.
    pub(crate) fn waits_for_room(&self, bytes: usize) -> bool {
        // Relaxed: a hint; a reader that misses it holds one answer while it waits.
        bytes > BUFFER_BYTES && self.room.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Place {
    /// Returns what the connection holds: initially nothing.
    pub(crate) fn hold(&self) -> BufferHold {
        let (connections, seat) = (Arc::clone(&self.connections), Arc::clone(&self.seat));
        BufferHold { connections, seat, charge: None, share: None }
    }
}

impl BufferHold {
    /// Changes what is held to `bytes`, and waits for room if that is more than before. Costs
    /// nothing if it is unchanged.
    pub(crate) async fn set(&mut self, bytes: u64, clock: &Clock) {
        let before = self.held();
        if bytes == before {
            return;
        }
        if before == 0 {
            self.share = self.seat.share.get().cloned();
        }
        let connections = Arc::clone(&self.connections);
        let BufferRoom { turn, waiting, .. } = &connections.room;
        // Relaxed: a hint; a connection that misses it takes room a moment earlier than those that
        // wait.
        let may_try =
            bytes < before || waiting.load(Ordering::Relaxed) == 0 && self.is_within(bytes);
        if !(may_try && self.try_set(bytes)) {
            // Relaxed: as above.
            waiting.fetch_add(1, Ordering::Relaxed);
            let _waiting = Waiting(waiting);
            let share = self.share.clone();
            let _own = match &share {
                Some(share) => Some(share.turn.lock().await),
                None => None,
            };
            while !self.is_within(bytes) {
                connections.reclaim(&self.seat, share.as_ref(), clock.now().ms, millis(STALLED));
                sleep(LOOK).await;
            }
            let _turn = turn.lock().await;
            while !self.try_set(bytes) {
                connections.reclaim(&self.seat, None, clock.now().ms, millis(STALLED));
                sleep(LOOK).await;
            }
        }
        if before == 0 {
            self.seat.set_given(clock.now().ms);
        }
        self.seat.set_held(bytes);
    }

    fn held(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    /// Returns whether its user may hold that much here.
    fn is_within(&self, bytes: u64) -> bool {
        let Some(share) = &self.share else { return true };
        let BufferRoom { root, quota, .. } = &self.connections.room;
        let (more, usage) = (bytes.saturating_sub(self.held()), root.usage(*quota));
        let left = usage.limit.unwrap_or(u64::MAX).saturating_sub(usage.current + more);
        // Relaxed: a hint, as above; what all hold is exact.
        let has = share.held.load(Ordering::Relaxed);
        has == self.held() || has + more <= left.saturating_mul(PART as u64)
    }

    fn try_set(&mut self, bytes: u64) -> bool {
        let before = self.held();
        match &mut self.charge {
            Some(_) if bytes == 0 => self.charge = None,
            Some(charge) => {
                if charge.resize(bytes).is_err() {
                    return false;
                }
            }
            None if bytes == 0 => {}
            None => {
                let BufferRoom { root, quota, .. } = &self.connections.room;
                let Ok(charge) = root.try_charge(*quota, bytes) else { return false };
                self.charge = Some(charge);
            }
        }
        if let Some(share) = &self.share {
            // Relaxed: as in `is_within`. Wraps around to subtract.
            share.held.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
        true
    }
}

impl Drop for BufferHold {
    fn drop(&mut self) {
        // To hold less never fails.
        self.try_set(0);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Relaxed: as in `set`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::time::timeout;

    use super::*;
    use crate::protocol::Access;
    use crate::{Cache, Config};

    const MAX: u64 = 8 << 20;

    fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
    }

    #[tokio::test]
    async fn waits_for_room_are_in_order_of_arrival() {
        let cache = Cache::new(Config { buffers_max: MAX, ..Config::default() }).expect("sound");
        let clock = &cache.store().clock;
        let place =
            || cache.connections().take_place(clock.now().ms, false).expect("there are many");
        let (one, two, three) = (place(), place(), place());
        let (mut first, mut second, mut third) = (one.hold(), two.hold(), three.hold());
        first.set(MAX - 1000, clock).await;
        {
            let mut second = pin!(second.set(2000, clock));
            assert!(is_pending(second.as_mut()));
            // It would fit, but it came later.
            let mut third = pin!(third.set(10, clock));
            assert!(is_pending(third.as_mut()));
            // A connection that shrinks need not wait.
            first.set(MAX - 3000, clock).await;
            let soon = Duration::from_secs(30);
            timeout(soon, second).await.expect("there is room");
            timeout(soon, third).await.expect("there is room");
        }
        let held = |bytes| {
            let usage = cache.tree().root().usage(cache.metrics().buffers);
            assert_eq!((usage.current, usage.limit), (bytes, Some(MAX)));
            assert!(usage.peak <= MAX);
        };
        held(MAX - 990);
        drop((first, third));
        held(2000);
        second.set(0, clock).await;
        held(0);
    }

    /// A user that takes all it can get leaves others room at once; its own connections make room
    /// for each other.
    #[tokio::test]
    async fn no_user_takes_the_room_of_others() {
        let cache = Cache::new(Config { buffers_max: MAX, ..Config::default() }).expect("sound");
        let clock = &cache.store().clock;
        let of = |user: &str| {
            let place = cache.connections().take_place(clock.now().ms, true).expect("free");
            place.log_in(&user.into(), Access::Everything, true).expect("welcome");
            place
        };
        let places: Vec<Place> = (0..9).map(|_| of("acme")).collect();
        let mut holds: Vec<BufferHold> = places.iter().map(Place::hold).collect();
        let (granted, more) = holds.split_at_mut(7);
        for hold in granted {
            let mut set = pin!(hold.set(MAX / 8, clock));
            assert!(!is_pending(set.as_mut()), "seven eighths");
        }
        let [eighth, ninth] = more else { panic!("two more") };
        let (bob, carol) = (of("bob"), of("carol"));
        {
            let mut waits = pin!(eighth.set(1000, clock));
            assert!(is_pending(waits.as_mut()), "beyond its part");
            let mut behind = pin!(ninth.set(1, clock));
            assert!(is_pending(behind.as_mut()), "in order of arrival");
            for other in [&bob, &carol] {
                let mut hold = other.hold();
                let mut set = pin!(hold.set(200_000, clock));
                assert!(!is_pending(set.as_mut()), "it waits behind those of acme");
            }
        }
        drop((holds, places));
        assert_eq!(cache.tree().root().usage(cache.metrics().buffers).current, 0);
    }
}
