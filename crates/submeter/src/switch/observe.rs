//! Observers, which are called at each switch.
//!
//! The process has a registry of factories, and each thread the observers that they created. A
//! thread notices a change of the registry by one number, which it compares at each switch to
//! another group.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use submeter_percpu::contain::contain;

use crate::tree::group::Group;

/// A follower of one thread from group to group. See [`observe`].
///
/// Its thread creates, calls and drops it, so it needs neither locks nor `Send`. It runs inside the
/// switch, and every switch pays for its work. It may update any group; entering one has no effect,
/// and [`current`](crate::switch::current) is `None` there. An observer that panics is dropped and
/// not called again on that thread.
pub trait Observer {
    /// Called after the thread switched from `last` to `next`; `None` is no group.
    ///
    /// `now_ns` is the thread's CPU time ([`clock`](crate::switch::clock)), read once for all
    /// observers. A thread that ends in a group leaves it.
    fn switched(&mut self, last: Option<&Group>, next: Option<&Group>, now_ns: u64);

    /// Called when the thread is about to wait ([`park`](crate::switch::park)) or to end: the
    /// moment to publish values that only this thread holds. The thread stays in `group`.
    fn parked(&mut self, group: Option<&Group>, now_ns: u64) {
        let _ = (group, now_ns);
    }

    /// Returns whether it wants to know the time. Asked once, after its creation.
    ///
    /// If no observer of a thread does, they are called without it: `now_ns` is 0, and the clock is
    /// not read for them. The read is most of what an observer costs.
    fn wants_time(&self) -> bool {
        true
    }
}

/// Creates the observer of the calling thread, given its CPU time; `None` to leave it alone.
type Factory = dyn Fn(u64) -> Option<Box<dyn Observer>> + Send + Sync;

/// Gives every thread of the process an observer of its own, until the result is dropped.
///
/// A thread calls `factory` once, at its next switch to another group or its next
/// [`park`](crate::switch::park); it is not observed before. The thread drops its observer at the
/// first such occasion after the [`Observation`] is gone, or when it ends; until then the observer
/// may still be called.
///
/// # What it costs
/// Without observers, a load and a comparison at each switch to another group. With observers, a
/// call for each, and one read of the clock for all of them unless none [wants
/// it](Observer::wants_time); metered CPU time shares that read. The first switch after observers
/// were added or removed copies their list, without waiting for it, and creates and drops
/// observers. Entering the current group again calls none.
///
/// # When not to use it
/// To count events by group: use [`perf::Session`](crate::perf::Session), or
/// [`SchemaBuilder::event`](crate::SchemaBuilder::event) if all groups count the same.
///
/// If another thread was adding or removing an observer at a fork, doing so in the child waits
/// forever. Switches continue.
///
/// # Examples
/// ```standalone_crate
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use submeter::switch::{self, Observer};
/// use submeter::{Group, Schema, Tree};
///
/// struct Switches(Arc<AtomicU64>);
///
/// impl Observer for Switches {
///     fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let switches = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&switches);
/// let observation = switch::observe(move |_| Some(Box::new(Switches(Arc::clone(&counted)))));
/// tree.root().run(|| tree.root().run(|| ()));
/// drop(observation);
/// assert_eq!(switches.load(Ordering::Relaxed), 2, "in and out; the group entered again is none");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn observe(
    factory: impl Fn(u64) -> Option<Box<dyn Observer>> + Send + Sync + 'static,
) -> Observation {
    let entry = Arc::new(ObserverEntry { factory: Box::new(factory), panicked: AtomicU64::new(0) });
    change(|entries| entries.push(Arc::clone(&entry)));
    Observation { entry }
}

/// A guard that keeps threads observed until it is dropped. See [`observe`].
///
/// # Examples
/// ```
/// use submeter::switch;
///
/// // A factory that returns `None` leaves each thread alone.
/// let observation = switch::observe(|_| None);
/// assert_eq!(observation.panicked(), 0);
/// drop(observation);
/// ```
#[must_use = "threads are followed until this is dropped"]
pub struct Observation {
    entry: Arc<ObserverEntry>,
}

impl Observation {
    /// Returns how many observers were dropped because they, or the factory, panicked: those
    /// threads are no longer observed.
    #[must_use]
    pub fn panicked(&self) -> u64 {
        // Relaxed: a statistic.
        self.entry.panicked.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").field("panicked", &self.panicked()).finish_non_exhaustive()
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        change(|entries| entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry)));
    }
}

struct ObserverEntry {
    factory: Box<Factory>,
    panicked: AtomicU64,
}

/// All factories, copied on write.
type Entries = Arc<Vec<Arc<ObserverEntry>>>;

struct List {
    generation: u64,
    entries: Entries,
}

/// The list of the last generation, and an empty place. A change fills the empty place, publishes
/// the generation, and empties the other. So a switch never waits for a change: no change holds the
/// lock of the place where the switch looks, even if the changing thread has lost the CPU, stayed
/// behind at a fork, or is interrupted by a signal handler that switches.
static LISTS: [RwLock<Option<List>>; 2] = [const { RwLock::new(None) }; 2];

/// The last published generation; 0 before the first. Writers: changes.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Held by the thread that makes a change.
static CHANGE: Mutex<()> = Mutex::new(());

/// A value that is no list's generation.
const NEVER: u64 = u64::MAX;

/// Returns the place of a generation's list.
fn place_of(generation: u64) -> &'static RwLock<Option<List>> {
    &LISTS[(generation % 2) as usize]
}

fn change(how: impl FnOnce(&mut Vec<Arc<ObserverEntry>>)) {
    let alone = CHANGE.lock();
    // Relaxed: only the holder of the lock writes it.
    let last = GENERATION.load(Ordering::Relaxed);
    let mut entries = entries_of(last).map_or_else(Vec::new, |entries| Vec::clone(&entries));
    how(&mut entries);
    let list = List { generation: last + 1, entries: Arc::new(entries) };
    *place_of(last + 1).write() = Some(list);
    // Release: pairs with the Acquire in `published`, so that the list is found in its place.
    GENERATION.store(last + 1, Ordering::Release);
    let old = place_of(last).write().take();
    drop(alone);
    // Factories are user code: they are not dropped with a lock held. That includes factories of
    // other observations that ended meanwhile: a panic there does not belong to the thread of this
    // change.
    let _ = contain(|| drop(old));
}

/// Returns the last generation and its entries, once there is one.
///
/// It retries only if another change was published since it began.
fn published() -> (u64, Entries) {
    loop {
        // Acquire: pairs with the Release in `change`.
        let generation = GENERATION.load(Ordering::Acquire);
        if let Some(entries) = entries_of(generation) {
            return (generation, entries);
        }
    }
}

/// Returns a generation's entries; for the last generation, always.
fn entries_of(generation: u64) -> Option<Entries> {
    let list = place_of(generation).try_read()?;
    let list = list.as_ref().filter(|list| list.generation == generation)?;
    Some(Arc::clone(&list.entries))
}

/// `None` for an observer that panicked, and for a thread that its factory leaves alone.
type ObserverSlot = Option<Box<dyn Observer>>;

/// The observers of one thread.
pub(super) struct Observers {
    /// The last generation without an observer for this thread, or `NEVER` if it has one.
    unfollowed: u64,
    /// The last generation seen.
    seen: u64,
    /// Whether any of them wants to know the time.
    want_time: bool,
    /// In the order of the registry.
    list: Vec<(Arc<ObserverEntry>, ObserverSlot)>,
}

impl Observers {
    pub(super) const fn new() -> Observers {
        Observers { unfollowed: 0, seen: 0, want_time: false, list: Vec::new() }
    }

    /// Returns whether there is an observer to call or to create.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        // Relaxed: a change may be noticed late, as if this switch had come earlier.
        GENERATION.load(Ordering::Relaxed) != self.unfollowed
    }

    /// Returns whether an observer follows the thread. Other registrations do not matter to a
    /// thread that ends.
    pub(super) fn follow(&self) -> bool {
        !self.list.is_empty()
    }

    /// Inlined: its only caller is a call of its own already.
    #[inline(always)]
    pub(super) fn switched(
        &mut self,
        last: Option<&Group>,
        next: Option<&Group>,
        time: impl FnOnce() -> u64,
    ) {
        let now_ns = self.look(time);
        self.each(|observer| observer.switched(last, next, now_ns));
    }

    pub(super) fn parked(&mut self, group: Option<&Group>, time: impl FnOnce() -> u64) {
        let now_ns = self.look(time);
        self.each(|observer| observer.parked(group, now_ns));
    }

    /// For the end of the thread: no observer begins to follow it now.
    pub(super) fn ended(&mut self, last: Option<&Group>, now_ns: u64) {
        if last.is_some() {
            self.each(|observer| observer.switched(last, None, now_ns));
        }
        self.each(|observer| observer.parked(None, now_ns));
        while let Some((entry, observer)) = self.list.pop() {
            observed(&entry, || drop(observer));
            let_go(entry);
        }
    }

    #[inline(always)]
    fn each(&mut self, mut call: impl FnMut(&mut dyn Observer)) {
        for (entry, slot) in &mut self.list {
            let Some(observer) = slot else { continue };
            if observed(entry, || call(&mut **observer)).is_none() {
                // Its state is that of an interrupted call.
                let broken = slot.take();
                observed(entry, || drop(broken));
            }
        }
    }

    /// Looks for a change of the registry. Returns the time if it matters: to an observer, or to a
    /// factory that creates one now.
    #[inline(always)]
    fn look(&mut self, time: impl FnOnce() -> u64) -> u64 {
        // Relaxed: as in `any`. Read once: a factory that creates an observer gets the time.
        let is_new = GENERATION.load(Ordering::Relaxed) != self.seen;
        let now_ns = if is_new || self.want_time { time() } else { 0 };
        if is_new {
            self.refresh(now_ns);
        }
        now_ns
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self, now_ns: u64) {
        let (generation, entries) = published();
        let mut had = std::mem::take(&mut self.list);
        for entry in entries.iter() {
            let place = had.iter().position(|(known, _)| Arc::ptr_eq(known, entry));
            let observer = match place {
                Some(place) => had.swap_remove(place).1,
                None => observed(entry, || (entry.factory)(now_ns)).flatten(),
            };
            self.list.push((Arc::clone(entry), observer));
        }
        for (entry, observer) in had {
            observed(&entry, || drop(observer));
            let_go(entry);
        }
        // The registry may have a new list already, and have left this one to the thread.
        Arc::into_inner(entries).into_iter().flatten().for_each(let_go);
        self.seen = generation;
        let followed = self.list.iter().any(|(_, observer)| observer.is_some());
        self.unfollowed = if followed { NEVER } else { generation };
        self.want_time = self.list.iter().any(|(entry, observer)| {
            let asked = observer.as_ref().map(|one| observed(entry, || one.wants_time()));
            asked.is_some_and(|wants| wants.unwrap_or(true))
        });
    }
}

/// Calls an observer, and counts its panics. A panic that left the switch would leave the thread
/// between two groups, and in the drop of a guard it would end the process.
#[inline(always)]
fn observed<T>(entry: &ObserverEntry, call: impl FnOnce() -> T) -> Option<T> {
    let returned = contain(call);
    if returned.is_err() {
        // Relaxed: a statistic.
        entry.panicked.fetch_add(1, Ordering::Relaxed);
    }
    returned.ok()
}

/// Releases an entry, perhaps as its last holder. Then what its factory captured is dropped here,
/// which is user code too. No caller remains to ask how often it panicked.
fn let_go(entry: Arc<ObserverEntry>) {
    let _ = contain(|| drop(entry));
}

#[cfg(test)]
mod tests {
    use std::future::{Future, ready};
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::switch::InGroup;
    use crate::{Schema, Tree};

    /// Counts the switches of the calling thread.
    fn counting() -> (Observation, Arc<AtomicU64>) {
        struct Switches(Arc<AtomicU64>);
        impl Observer for Switches {
            fn switched(&mut self, _: Option<&Group>, _: Option<&Group>, _: u64) {
                // Relaxed: one thread.
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (me, switches) = (std::thread::current().id(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&switches);
        let observation = observe(move |_| {
            let mine = std::thread::current().id() == me;
            mine.then(|| Box::new(Switches(Arc::clone(&counted))) as _)
        });
        (observation, switches)
    }

    fn tree() -> Tree {
        Tree::new(Schema::builder().build().expect("valid")).expect("address space")
    }

    #[test]
    fn a_future_that_ends_enters_its_group_no_more() {
        let tree = tree();
        let (observation, switches) = counting();
        {
            let mut future = pin!(ready(()).in_group(tree.root()));
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(()));
        }
        // Relaxed: this thread counts.
        assert_eq!(switches.load(Ordering::Relaxed), 2, "in and out, once");
        drop(observation);
    }

    /// Runs `test`, which may hang, on a thread of its own.
    fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || _ = done.send(test()));
        finished.recv_timeout(Duration::from_secs(120)).expect("no deadlock, and no panic")
    }

    /// The stopped change stands for a thread that lost the CPU during one, or that stayed behind
    /// at a fork.
    #[test]
    fn a_switch_waits_for_no_change() {
        let counted = in_time(|| {
            let tree = tree();
            let (observation, switches) = counting();
            // Stops a change where it needs the place that is `from` after the last generation's.
            let stopped_at = |from: u64| {
                let alone = CHANGE.lock();
                // Relaxed, here and below: only the number matters.
                let last = GENERATION.load(Ordering::Relaxed);
                let place = place_of(last + from);
                let stops = place.read();
                drop(alone);
                let changer = std::thread::spawn(|| drop(observe(|_| None)));
                // A waiting writer keeps readers out.
                while place.try_read().is_some() {
                    std::thread::yield_now();
                }
                // Relaxed: as above.
                assert_eq!(GENERATION.load(Ordering::Relaxed), last + 1 - from, "it has stopped");
                tree.root().run(|| ());
                drop(stops);
                changer.join().expect("no panic");
                // Relaxed: this thread counts.
                switches.load(Ordering::Relaxed)
            };
            let counted = [1, 0].map(stopped_at);
            drop(observation);
            counted
        });
        assert_eq!(counted, [2, 4], "in and out, both times");
    }

    #[test]
    fn each_switch_is_observed_stress() {
        const RUNS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let tree = tree();
        let (observation, switches) = counting();
        let (over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut runs = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // Relaxed, and below: it ends the loop.
                let is_over = || over.load(Ordering::Relaxed);
                let changes = &changes;
                scope.spawn(move || {
                    while !is_over() {
                        drop(observe(|_| None));
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Observers have come and gone meanwhile.
            while runs < RUNS || changes.load(Ordering::Relaxed) < 2 {
                tree.root().run(|| ());
                runs += 1;
            }
            // Relaxed: as above.
            over.store(true, Ordering::Relaxed);
        });
        // Relaxed: this thread counts.
        assert_eq!(switches.load(Ordering::Relaxed), 2 * runs);
        drop(observation);
    }

    /// An observation's factory is dropped with it.
    #[test]
    fn an_ended_observation_leaves_nothing() {
        let captured = Arc::new(());
        let weak = Arc::downgrade(&captured);
        drop(observe(move |_| {
            let _ = &captured;
            None
        }));
        // A thread of another test keeps it until its next switch.
        in_time(move || {
            while weak.strong_count() > 0 {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_list_is_found_by_its_own_generation_alone() {
        let observation = observe(|_| None);
        let alone = CHANGE.lock();
        // Relaxed: only the holder of the lock writes it.
        let last = GENERATION.load(Ordering::Relaxed);
        let found = [0, 1, 2].map(|more| entries_of(last + more).is_some());
        drop(alone);
        assert_eq!(found, [true, false, false]);
        drop(observation);
    }

    /// The factory of another observation may panic when it is dropped.
    #[test]
    fn a_change_survives_a_panicking_factory() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let captured = Panics;
        let factory = move |_| {
            let _ = &captured;
            None
        };
        let entry = ObserverEntry { factory: Box::new(factory), panicked: AtomicU64::new(0) };
        let entry = Arc::new(entry);
        let address = Arc::as_ptr(&entry) as usize;
        change(|entries| entries.push(entry));
        // This change holds the last list that has it, as if its observation had ended meanwhile.
        change(|entries| entries.retain(|known| Arc::as_ptr(known) as usize != address));
    }

    /// The change stands for a signal handler or an allocator that switches.
    #[test]
    fn a_switch_amid_its_own_change_does_not_wait() {
        let counted = in_time(|| {
            let tree = tree();
            let (observation, switches) = counting();
            change(|_| tree.root().run(|| ()));
            drop(observation);
            // Relaxed: this thread counts.
            switches.load(Ordering::Relaxed)
        });
        assert_eq!(counted, 2, "it is observed by those that were there before");
    }
}
