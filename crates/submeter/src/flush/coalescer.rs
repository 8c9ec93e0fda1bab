//! Who flushes, and whom a flush covers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::node_table::Birth;

/// One flush after another: each works with the state `S`, and covers every caller that asked
/// before it began.
///
/// Between two flushes it keeps the groups that came (with what the flush keeps of each, `K`) and
/// those that went.
pub(crate) struct Coalescer<K, S> {
    /// Groups that no flush knows yet. Locked for a push or a swap only.
    births: Mutex<Vec<Birth<K>>>,
    /// Groups whose last handle is gone. Locked as `births`.
    deaths: Mutex<Vec<u32>>,
    /// Locked while a flush runs.
    state: Mutex<S>,
    /// Flushes begun: what coalescing compares.
    begun: AtomicU64,
    /// The number of the last flush of everything that is complete. Written with `state` locked.
    covered: AtomicU64,
    /// When that flush began, in ns after `epoch`.
    as_of_ns: AtomicU64,
    epoch: Instant,
}

/// A flush that began.
pub(crate) struct Begun {
    pub(crate) number: u64,
    /// In ns after the coalescer was made.
    pub(crate) as_of_ns: u64,
    start: Instant,
}

impl Begun {
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl<K, S> Coalescer<K, S> {
    pub(crate) fn new(state: S) -> Coalescer<K, S> {
        Coalescer {
            births: Mutex::default(),
            deaths: Mutex::default(),
            state: Mutex::new(state),
            begun: AtomicU64::new(0),
            covered: AtomicU64::new(0),
            as_of_ns: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }

    // ---- who is covered ----------------------------------------------------------------------

    /// Returns the number of the last flush that began: one with a higher number covers every
    /// update that returned before this call.
    pub(crate) fn ask(&self) -> u64 {
        // SeqCst: pairs with the increment in `begin`: a flush with a higher number takes its marks
        // after this load.
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits for the flush that is under way, and keeps the next one from beginning.
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Returns whether a flush of everything that began after `asked` is complete. For the holder
    /// of the lock.
    pub(crate) fn covers(&self, asked: u64) -> bool {
        // Relaxed: written and read with `state` locked.
        self.covered.load(Ordering::Relaxed) > asked
    }

    /// Begins a flush. For the holder of the lock, before it takes any mark.
    pub(crate) fn begin(&self) -> Begun {
        // SeqCst: see `ask`; before the marks are taken.
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let start = Instant::now();
        let as_of_ns = start.duration_since(self.epoch).as_nanos() as u64;
        Begun { number, as_of_ns, start }
    }

    /// Notes that a flush of everything is complete. For the holder of the lock, after it has
    /// stored the totals.
    pub(crate) fn complete(&self, flush: &Begun) {
        // Relaxed: written and read with `state` locked.
        self.covered.store(flush.number, Ordering::Relaxed);
        // Release: after the totals; pairs with the Acquire in `as_of_ns`.
        self.as_of_ns.store(flush.as_of_ns, Ordering::Release);
    }

    // ---- when totals are from ----------------------------------------------------------------

    /// Returns when the last complete flush of everything began, in ns after the coalescer was
    /// made: totals that are read after this call are of that flush or of a later one, so that the
    /// age of that flush is never too low for them.
    #[inline]
    pub(crate) fn as_of_ns(&self) -> u64 {
        // Acquire: before the totals; pairs with the Release in `complete`.
        self.as_of_ns.load(Ordering::Acquire)
    }

    /// Returns how long ago `as_of_ns` was.
    #[inline]
    pub(crate) fn age(&self, as_of_ns: u64) -> Duration {
        self.epoch.elapsed().saturating_sub(Duration::from_nanos(as_of_ns))
    }

    pub(crate) fn instant(&self, as_of_ns: u64) -> Instant {
        self.epoch + Duration::from_nanos(as_of_ns)
    }

    // ---- groups that come and go -------------------------------------------------------------

    /// Announces a group. Before its first update, and after its parent was announced.
    pub(crate) fn announce(&self, birth: Birth<K>) {
        self.births.lock().push(birth);
    }

    /// Notes that a group's last handle is gone. After its last update and before its parent's end.
    pub(crate) fn bury(&self, id: u32) {
        self.deaths.lock().push(id);
    }

    pub(crate) fn take_births(&self) -> Vec<Birth<K>> {
        std::mem::take(&mut *self.births.lock())
    }

    pub(crate) fn take_deaths(&self) -> Vec<u32> {
        std::mem::take(&mut *self.deaths.lock())
    }

    /// Leaves the dead that a flush has taken to a later one.
    pub(crate) fn defer(&self, deaths: impl IntoIterator<Item = u32>) {
        self.deaths.lock().extend(deaths);
    }
}
