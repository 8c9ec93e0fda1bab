//! The choice of the thread that flushes, and of the callers that a flush covers.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use submeter_percpu::clock::Clock;
use submeter_percpu::pending::Numbers;
use submeter_percpu::process_lock::ProcessMutex;

use super::node_table::Birth;

/// Runs one flush after another: each works with the state `S`, and covers every caller that asked
/// before it began.
///
/// Between two flushes it queues the groups that came (each with what the flush keeps of it, `K`)
/// and those that went.
pub(crate) struct Coalescer<K, S> {
    /// Groups that no flush knows yet, parents before their children.
    births: Waiting<Birth<K>>,
    /// Groups whose last handle is gone, children before their parents.
    deaths: Waiting<u32>,
    /// Locked while a flush runs.
    state: ProcessMutex<S>,
    /// Number of flushes begun, which coalescing compares.
    begun: Numbers,
    /// The number of the last flush of everything that is complete. Written with `state` locked.
    covered: AtomicU64,
    /// When that flush began, by `clock`; before the first one, when the coalescer was made.
    as_of_ns: AtomicU64,
    clock: Clock,
}

/// A flush that began.
pub(crate) struct Begun {
    pub(crate) number: u64,
    /// When, by the coalescer's clock.
    pub(crate) as_of_ns: u64,
}

impl<K, S> Coalescer<K, S> {
    pub(crate) fn new(state: S, clock: Clock) -> Coalescer<K, S> {
        Coalescer {
            births: Waiting::new(),
            deaths: Waiting::new(),
            state: ProcessMutex::new(state),
            begun: Numbers::default(),
            covered: AtomicU64::new(0),
            as_of_ns: AtomicU64::new(clock.now_ns()),
            clock,
        }
    }

    // ---- coverage --- ----------------------------------------------------------------------

    /// Returns the number of the last flush that began: one with a higher number covers every
    /// update that returned before this call.
    pub(crate) fn ask(&self) -> u64 {
        self.begun.ask()
    }

    /// Waits for the flush that is under way, and keeps the next one from beginning.
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Locks unless a flush is under way, or a caller of this thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, S>> {
        self.state.try_lock()
    }

    /// Returns whether a flush of everything that began after `asked` is complete. Only for the
    /// holder of the lock.
    pub(crate) fn covers(&self, asked: u64) -> bool {
        self.covered() > asked
    }

    /// Returns the number of the last flush that began.
    #[inline]
    pub(crate) fn begun(&self) -> u64 {
        self.begun.begun()
    }

    /// Returns the number of the last flush of everything that is complete.
    #[inline]
    pub(crate) fn covered(&self) -> u64 {
        // Acquire: before the totals; pairs with the Release in `complete`.
        self.covered.load(Ordering::Acquire)
    }

    /// Begins a flush. Only for the holder of the lock, before it takes any mark.
    pub(crate) fn begin(&self) -> Begun {
        let number = self.begun.begin();
        Begun { number, as_of_ns: self.clock.now_ns() }
    }

    /// Notes that a flush of everything is complete. Only for the holder of the lock, after it has
    /// stored the totals.
    pub(crate) fn complete(&self, flush: &Begun) {
        // Release: after the totals; pairs with the Acquire in `covered`.
        self.covered.store(flush.number, Ordering::Release);
        // Release: after the totals; pairs with the Acquire in `as_of_ns`.
        self.as_of_ns.store(flush.as_of_ns, Ordering::Release);
    }

    // ---- when totals are from ----------------------------------------------------------------

    /// Returns when the last complete flush of everything began, in ns of the clock. Totals that
    /// are read after this call are from that flush or a later one, so the age of that flush is
    /// never too low for them.
    #[inline]
    pub(crate) fn as_of_ns(&self) -> u64 {
        // Acquire: before the totals; pairs with the Release in `complete`.
        self.as_of_ns.load(Ordering::Acquire)
    }

    /// Returns how long ago `as_of_ns` was.
    #[inline]
    pub(crate) fn age(&self, as_of_ns: u64) -> Duration {
        self.clock.now().saturating_sub(Duration::from_nanos(as_of_ns))
    }

    pub(crate) fn instant(&self, as_of_ns: u64) -> Instant {
        self.clock.instant(Duration::from_nanos(as_of_ns))
    }

    // ---- groups that come and go -------------------------------------------------------------

    /// Announces a group. Call it before the group's first update, and after its parent was
    /// announced. Returns how many groups wait to be taken.
    pub(crate) fn announce(&self, birth: Birth<K>) -> usize {
        self.births.push(&mut self.births.queue.lock(), birth)
    }

    /// Notes that a group's last handle is gone. Call it after the group's last update and before
    /// its parent's end. Returns how many groups wait to be taken.
    pub(crate) fn bury(&self, id: u32) -> usize {
        // In a forked child the lock may never be released; the group then stays.
        let Some(mut deaths) = self.deaths.queue.lock_unless_abandoned() else { return 0 };
        self.deaths.push(&mut deaths, id)
    }

    /// Takes the earliest announced groups, at most `most`.
    pub(crate) fn take_births(&self, most: usize) -> VecDeque<Birth<K>> {
        self.births.take(most)
    }

    /// The same as [`take_births`](Self::take_births), but `None` in a forked child whose parent
    /// held the queue at the fork. For the end of a group, which must not panic.
    pub(crate) fn take_births_unless_abandoned(&self, most: usize) -> Option<VecDeque<Birth<K>>> {
        self.births.take_unless_abandoned(most)
    }

    /// Takes the earliest dead groups, at most `most`. Only for the holder of the lock.
    pub(crate) fn take_deaths(&self, most: usize) -> Vec<u32> {
        self.deaths.take(most).into()
    }

    /// Puts dead groups that were taken back for later, ahead of those that came since, which may
    /// be their parents. Only for the holder of the lock.
    pub(crate) fn defer(&self, deaths: Vec<u32>) {
        if deaths.is_empty() {
            return;
        }
        let mut waiting = self.deaths.queue.lock();
        deaths.into_iter().rev().for_each(|id| waiting.push_front(id));
        self.deaths.note_len(&waiting);
    }
}

/// A queue that is mostly empty and then costs the taker one load.
struct Waiting<T> {
    /// Locked to add or to take elements.
    queue: ProcessMutex<VecDeque<T>>,
    /// The length of the queue. Written with `queue` locked.
    len: AtomicUsize,
}

impl<T> Waiting<T> {
    fn new() -> Waiting<T> {
        Waiting { queue: ProcessMutex::new(VecDeque::new()), len: AtomicUsize::new(0) }
    }

    /// Appends one element and returns the new length.
    fn push(&self, queue: &mut VecDeque<T>, one: T) -> usize {
        queue.push_back(one);
        self.note_len(queue);
        queue.len()
    }

    fn note_len(&self, queue: &VecDeque<T>) {
        // Release: pairs with the Acquire in `take`. Everything that a thread does after it
        // announced a group (its first mark, its first pending error) comes after this.
        self.len.store(queue.len(), Ordering::Release);
    }

    /// Takes at most `most` elements from the front. A flush that takes all takes the memory too.
    #[inline]
    fn take(&self, most: usize) -> VecDeque<T> {
        if self.is_empty() { VecDeque::new() } else { self.take_some(self.queue.lock(), most) }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `note_len`. A flush that has seen anything later than
        // an announcement sees this length or a later one, but not the zero before it.
        self.len.load(Ordering::Acquire) == 0
    }

    fn take_unless_abandoned(&self, most: usize) -> Option<VecDeque<T>> {
        if self.is_empty() {
            return Some(VecDeque::new());
        }
        Some(self.take_some(self.queue.lock_unless_abandoned()?, most))
    }

    /// Takes elements where there are some. Out of line, because most flushes find none.
    #[cold]
    fn take_some(&self, mut queue: MutexGuard<'_, VecDeque<T>>, most: usize) -> VecDeque<T> {
        let taken = if queue.len() <= most {
            std::mem::take(&mut *queue)
        } else {
            queue.drain(..most).collect()
        };
        self.note_len(&queue);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that a flush defers keeps its order, ahead of what arrived since.
    #[test]
    fn what_is_put_off_comes_first_and_in_order() {
        let coalescer: Coalescer<(), ()> = Coalescer::new((), Clock::default());
        let waiting = [1, 2, 3].map(|id| coalescer.bury(id));
        assert_eq!(waiting, [1, 2, 3]);
        let taken = coalescer.take_deaths(2);
        // The parent of a group that was taken.
        coalescer.bury(4);
        coalescer.defer(taken);
        assert_eq!(coalescer.take_deaths(3), [1, 2, 3]);
        assert_eq!(coalescer.take_deaths(usize::MAX), [4]);
    }
}
