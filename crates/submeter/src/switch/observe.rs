//! Who else is told of a thread's switches.
//!
//! What is to be done at each switch beside metering (scheduling of events, a tracer's span) hangs on here. Threads learn
//! of a new observer at their next switch to another group, by one load of a number that seldom changes.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::group::Group;

/// Is told of each switch of one thread to another group.
///
/// It runs inside the switch: it must be quick, and what it enters or leaves itself has no effect. One that panics
/// is dropped ([`failed_observers`]), and the switch goes on.
///
/// See [`observe`] for an example.
pub trait Observer {
    /// The thread went from one group to another, either of which may be none.
    ///
    /// `now_ns` is the thread's CPU time, which never goes back. The first call has `None` for the group that was
    /// left, whatever it was: what the thread did there was not observed.
    fn switched(&mut self, left: Option<&Group>, entered: Option<&Group>, now_ns: u64);

    /// The thread stays where it is, and wants what it used so far to be seen: see [`park`](super::park).
    fn parked(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
}

/// Makes the observer of one thread, on that thread, which is told its CPU time; `None` if the thread is not to be observed.
type Factory = dyn Fn(u64) -> Option<Box<dyn Observer>> + Send + Sync;

/// Observes all threads until it is dropped. Made by [`observe`].
#[must_use = "threads are observed until this is dropped"]
pub struct Observation {
    id: u64,
}

/// Makes an observer for each thread that switches to another group from now on, by calling `factory` on it.
///
/// Costs each later switch a read of the thread's clock (which it shares with the metering of CPU time) and a call. A thread
/// drops its observer when it ends, or when it next switches or parks after the [`Observation`] is dropped.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use submeter::switch::{self, Observer};
/// use submeter::{Group, Schema, Tree};
///
/// struct Count(Arc<AtomicU64>);
///
/// impl Observer for Count {
///     fn switched(&mut self, _: Option<&Group>, entered: Option<&Group>, _: u64) {
///         if entered.is_some() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let entered = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&entered);
/// let observation = switch::observe(move |_| Some(Box::new(Count(Arc::clone(&counted)))));
/// tree.root().run(|| ());
/// drop(observation);
/// tree.root().run(|| ());
/// assert_eq!(entered.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn observe(
    factory: impl Fn(u64) -> Option<Box<dyn Observer>> + Send + Sync + 'static,
) -> Observation {
    // Relaxed: only the number matters.
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    FACTORIES.lock().push((id, Arc::new(factory)));
    changed();
    Observation { id }
}

/// Returns how many observers panicked, each of which was dropped then: what they observe is short of their threads.
#[must_use]
pub fn failed_observers() -> u64 {
    // Relaxed: a statistic.
    FAILED.load(Ordering::Relaxed)
}

impl Drop for Observation {
    fn drop(&mut self) {
        let mut factories = FACTORIES.lock();
        let at = factories.iter().position(|(id, _)| *id == self.id);
        let factory = at.map(|at| factories.remove(at));
        drop(factories);
        changed();
        // Outside the lock: it is the user's, and may do anything when it is dropped.
        drop(factory);
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").finish_non_exhaustive()
    }
}

static FACTORIES: Mutex<Vec<(u64, Arc<Factory>)>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Changes with `FACTORIES`.
static VERSION: AtomicU32 = AtomicU32::new(0);

fn changed() {
    // Release: pairs with the Acquire in `Observers::renew`. Wrapping: a thread would have to sleep through all of them.
    VERSION.fetch_add(1, Ordering::Release);
}

/// The observers of one thread.
pub(super) struct Observers {
    installed: Vec<Installed>,
    /// Of `FACTORIES`, when they were installed.
    version: u32,
}

struct Installed {
    id: u64,
    /// `None` for a thread that is not to be observed, or whose observer has panicked.
    observer: Option<Box<dyn Observer>>,
    /// Whether it knows of the group that the thread is in.
    told: bool,
}

impl Observers {
    pub(super) const fn new() -> Observers {
        Observers { installed: Vec::new(), version: 0 }
    }

    /// Returns whether a switch concerns nobody: then the clock need not be read for it.
    #[inline(always)]
    pub(super) fn idle(&self) -> bool {
        // Relaxed: the load in `renew` decides; a change that is seen late is seen at the next switch.
        self.installed.is_empty() && self.version == VERSION.load(Ordering::Relaxed)
    }

    /// Tells of a switch.
    #[inline(never)]
    pub(super) fn switched(&mut self, left: Option<&Group>, entered: Option<&Group>, now_ns: u64) {
        self.renew(now_ns);
        self.tell(left, entered, now_ns);
    }

    /// Tells of the thread's end. For that nobody begins to observe it.
    pub(super) fn ended(&mut self, left: Option<&Group>, now_ns: impl FnOnce() -> u64) {
        if !self.installed.is_empty() {
            self.tell(left, None, now_ns());
        }
    }

    #[inline]
    fn tell(&mut self, left: Option<&Group>, entered: Option<&Group>, now_ns: u64) {
        for installed in &mut self.installed {
            let left = left.filter(|_| installed.told);
            installed.told = true;
            installed.call(|observer| observer.switched(left, entered, now_ns));
        }
    }

    /// Tells that the thread wants to be seen.
    #[cold]
    pub(super) fn parked(&mut self, now_ns: u64) {
        self.renew(now_ns);
        for installed in &mut self.installed {
            installed.call(|observer| observer.parked(now_ns));
        }
    }

    /// Makes and drops what was asked for and given up since the last switch.
    #[inline(always)]
    fn renew(&mut self, now_ns: u64) {
        // Acquire: pairs with the Release in `changed`, so that the list has what the number tells of.
        let version = VERSION.load(Ordering::Acquire);
        if version != self.version {
            self.change(version, now_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, version: u32, now_ns: u64) {
        // Not waited for: a switch takes no lock that somebody holds, and in a forked child nobody may be there to
        // give it back. The next switch tries again.
        let Some(factories) = FACTORIES.try_lock().map(|factories| factories.clone()) else {
            return;
        };
        self.version = version;
        self.installed.retain_mut(|old| {
            let stays = factories.iter().any(|(id, _)| *id == old.id);
            if !stays {
                old.end();
            }
            stays
        });
        for (id, factory) in factories {
            if self.installed.iter().all(|old| old.id != id) {
                let made = panic::catch_unwind(AssertUnwindSafe(|| factory(now_ns)));
                if made.is_err() {
                    // Relaxed: a statistic.
                    FAILED.fetch_add(1, Ordering::Relaxed);
                }
                let observer = made.unwrap_or(None);
                self.installed.push(Installed { id, observer, told: false });
            }
        }
    }
}

impl Installed {
    /// Calls the observer; one that panics is dropped. Nothing of ours is seen half-changed: it has only its own state and
    /// what it was lent.
    #[inline]
    fn call(&mut self, act: impl FnOnce(&mut dyn Observer)) {
        let Some(observer) = self.observer.as_deref_mut() else { return };
        if panic::catch_unwind(AssertUnwindSafe(|| act(observer))).is_err() {
            // Relaxed: a statistic.
            FAILED.fetch_add(1, Ordering::Relaxed);
            self.end();
        }
    }

    fn end(&mut self) {
        let observer = self.observer.take();
        // Its end is the user's code too; a second panic is as good as the first.
        let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(observer)));
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.installed.iter_mut().for_each(Installed::end);
    }
}
