//! What comes after zero: the release, once; and whoever waits for its end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use crate::sync::atomic::{AtomicU32, Ordering};

use super::raw::ForkMutex;

/// Somebody runs the release callback, or did.
const RELEASING: u32 = 1;
/// The callback has returned.
const RELEASED: u32 = 2;
/// Somebody may wait.
const WAITING: u32 = 4;
/// The number of the life, above the flags.
const LIFE: u32 = 8;

/// Where in its lives a reference count is.
#[derive(Debug)]
pub(super) struct Life {
    /// Bits: as above. Writers: the last putter sets the first two, waiters the third, `restart` starts over.
    phase: AtomicU32,
    /// `None` until somebody waits: most counts are never waited for, and every group has one.
    waiters: ForkMutex<Option<Box<Waiters>>>,
}

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    list: Vec<(u64, Waker)>,
}

impl Life {
    /// `dead`: there is nothing to release yet, which counts as released.
    pub(super) fn new(dead: bool) -> Life {
        let phase = if dead { RELEASING | RELEASED } else { 0 };
        Life { phase: AtomicU32::new(phase), waiters: ForkMutex::default() }
    }

    /// Elects the one that releases.
    pub(super) fn begin_release(&self) -> bool {
        // Acquire: what the references were used for is ordered by the count; this orders releases of
        // successive lives.
        self.phase.fetch_or(RELEASING, Ordering::Acquire) & RELEASING == 0
    }

    /// Says that the release is over, and wakes those who wait for it.
    pub(super) fn end_release(&self) {
        // AcqRel: Release pairs with the Acquire in `is_over`: who sees it sees all that the callback
        // did. Acquire: a waiter that set its bit is in the list.
        if self.phase.fetch_or(RELEASED, Ordering::AcqRel) & WAITING != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Woken outside of the lock: a waker is anybody's code.
        let list = self.waiters.with(|waiters| Some(std::mem::take(&mut waiters.as_mut()?.list)));
        for (_, waker) in list.into_iter().flatten() {
            waker.wake();
        }
    }

    /// Starts the next life, if the last one is over.
    pub(super) fn restart(&self) -> bool {
        // Relaxed: the exchange below decides.
        let mut phase = self.phase.load(Ordering::Relaxed);
        loop {
            if phase & RELEASED == 0 {
                return false;
            }
            let next = (phase & !(LIFE - 1)).wrapping_add(LIFE);
            // AcqRel: between the release before and the one after. Relaxed on failure: looks again.
            match self.phase.compare_exchange_weak(phase, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => phase = now,
            }
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.is_over(self.number())
    }

    fn number(&self) -> u32 {
        // Relaxed: only says which life to ask about.
        self.phase.load(Ordering::Relaxed) / LIFE
    }

    /// Whether the life of that number has been released.
    fn is_over(&self, number: u32) -> bool {
        // Acquire: pairs with the Release in `end_release`.
        let phase = self.phase.load(Ordering::Acquire);
        phase & RELEASED != 0 || phase / LIFE != number
    }

    pub(super) fn released(&self) -> Waiting<'_> {
        Waiting { life: self, number: self.number(), ticket: None }
    }

    /// Blocks until the present life is released. Returns whether it was, by `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let mut waiting = self.released();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if Pin::new(&mut waiting).poll(&mut context).is_ready() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::park_timeout(left);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The future behind every `released`.
pub(super) struct Waiting<'a> {
    life: &'a Life,
    number: u32,
    ticket: Option<u64>,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Waiting { life, number, ticket } = *self;
        if life.is_over(number) {
            return Poll::Ready(());
        }
        let new = context.waker().clone();
        let (ticket, old) = life.waiters.with(|waiters| {
            let waiters = waiters.get_or_insert_default();
            let place = waiters.list.iter_mut().find(|place| Some(place.0) == ticket);
            if let Some(place) = place {
                return (place.0, Some(std::mem::replace(&mut place.1, new)));
            }
            waiters.next += 1;
            waiters.list.push((waiters.next, new));
            (waiters.next, None)
        });
        // A waker's drop is anybody's code too.
        drop(old);
        self.ticket = Some(ticket);
        // AcqRel: Release: who sees the bit finds the list filled. Acquire: as `is_over`, in the same
        // location as the end, so that one of the two sees the other.
        let phase = life.phase.fetch_or(WAITING, Ordering::AcqRel);
        if phase & RELEASED != 0 || phase / LIFE != number {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let gone = self.life.waiters.with(|waiters| {
                let waiters = waiters.as_mut()?;
                let place = waiters.list.iter().position(|place| place.0 == ticket)?;
                Some(waiters.list.swap_remove(place))
            });
            drop(gone);
        }
    }
}

impl fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Released(life {})", self.number)
    }
}
