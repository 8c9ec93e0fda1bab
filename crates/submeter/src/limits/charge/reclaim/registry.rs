//! Callbacks, and which groups can ask them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_percpu::clock::Uptime;
use submeter_percpu::contain::contain;

use super::ASKED;
use crate::tree::callbacks::Registry;
use crate::tree::group::Group;

/// How long a call may be under way before others no longer wait for its end.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long one waits for its turn among others that ask: as long as ten calls may take.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// No call is under way.
const IDLE: u64 = u64::MAX;

type Callback = Box<dyn FnMut(u64) + Send>;

/// Returns where a group keeps its callbacks, if one was ever registered there or below.
pub(super) fn registry_of(group: &Group, slot: usize) -> Option<&Registry> {
    group.inner.quotas.get(slot)?.registry()
}

/// Returns the callbacks of a group and those below it.
pub(super) fn entries_of(registry: &Registry) -> Vec<Arc<Entry>> {
    let typed = |callback| Arc::downcast(callback).expect("nothing else is registered");
    registry.entries().into_iter().map(typed).collect()
}

/// One callback.
pub(super) struct Entry {
    number: u64,
    group: Group,
    slot: usize,
    /// Held by the thread that calls it, and by others only for a moment: none waits for it. In a
    /// forked child it stays held if a thread stayed behind in the callback, which may be half
    /// done.
    callback: Mutex<Callback>,
    uptime: Uptime,
    /// When the call under way began, in nanoseconds of `uptime`, or [`IDLE`]. Writer: the thread
    /// that calls it.
    began_ns: AtomicU64,
    ended: AtomicBool,
}

/// The outcome of an attempt to call a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    Returned,
    Panicked,
    /// Another thread is calling it, or was a moment ago.
    Busy,
    /// Its registration has ended.
    Ended,
    /// Nothing is wanted of it any longer.
    Unwanted,
}

impl Entry {
    pub(super) fn new(group: Group, slot: usize, callback: Callback) -> Entry {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Entry {
            // Relaxed: it only matters that each number is given once.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            group,
            slot,
            callback: Mutex::new(callback),
            uptime: Uptime::begin(),
            began_ns: AtomicU64::new(IDLE),
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts a call of it, in its group.
    pub(super) fn count(&self, freed: u64, below_low: bool, panicked: bool) {
        let limits = self.group.inner.quotas.get(self.slot);
        let registry = limits.expect("made with the registration").make_registry();
        registry.count(freed, below_low, panicked);
    }

    /// Lets no further call begin, unless it races with this one.
    pub(super) fn end(&self) {
        // Relaxed: a caller that asks after this, in the sense of the memory model, sees it.
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Calls it, unless it is being called or nothing is wanted.
    pub(super) fn call(&self, wanted: u64) -> Called {
        if wanted == 0 {
            return Called::Unwanted;
        }
        let Some(mut callback) = self.callback.try_lock() else { return Called::Busy };
        // Relaxed: see `end`.
        if self.ended.load(Ordering::Relaxed) {
            return Called::Ended;
        }
        // Relaxed, both: only a time.
        self.began_ns.store(self.uptime.now_ns(), Ordering::Relaxed);
        let before = ASKED.replace(true);
        // The callback may be called again: it answers for the state that a panic left.
        let has_returned = contain(|| callback(wanted)).is_ok();
        ASKED.set(before);
        self.began_ns.store(IDLE, Ordering::Relaxed);
        if has_returned { Called::Returned } else { Called::Panicked }
    }

    /// Waits for the end of the call under way. Returns false if that takes too long.
    pub(super) fn wait(&self) -> bool {
        let (start, call) = (Instant::now(), self.began_ns());
        while self.callback.is_locked() && self.began_ns() == call {
            // In a forked child it may be a call that its thread had not begun.
            if self.has_taken_long() || start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Whether a call takes too long to wait for.
    pub(super) fn is_stuck(&self) -> bool {
        self.callback.is_locked() && self.has_taken_long()
    }

    fn has_taken_long(&self) -> bool {
        let began = Duration::from_nanos(self.began_ns());
        self.uptime.now().checked_sub(began).is_some_and(|taken| taken > PATIENCE)
    }

    fn began_ns(&self) -> u64 {
        // Relaxed: see `call`.
        self.began_ns.load(Ordering::Relaxed)
    }
}

/// Drops references to callbacks, some of which may be the last: their values are dropped with
/// them, and a panic there does not reach the thread that asked.
pub(super) fn let_go(entries: impl IntoIterator<Item = Arc<Entry>>) {
    for entry in entries {
        let _ = contain(|| drop(entry));
    }
}
