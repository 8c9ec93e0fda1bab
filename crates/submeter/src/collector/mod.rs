//! Collectors: state of the user's own for each group and CPU, merged up the tree by the user's own functions.
//!
//! A counter is one number and adds up by itself. What tenants do is often something else: which keys
//! were hot, how many users there were, the slowest query. A [`Collect`] says what one group keeps on one
//! CPU, how to take what is new out of it, and how to merge two of those; the tree does the rest, as it does
//! for numbers: updates touch the running CPU's state only, a flush visits what changed, child
//! before parent, and what a killed group collected stays in its parent.
//!
//! # What it costs
//! An update costs the closure, a fence and a few loads; the first one of a group on a CPU allocates. A
//! flush costs one callback for each group and CPU that changed, and one merge for each level above.
//! Do not use it for what is a sum: [`Group::add`](crate::Group::add) needs no fence and no callback.
//!
//! # Who can harm whom
//! Every collector has its own flush, with its own lock, apart from the numbers'. A callback that takes
//! its time delays those who flush *that collector*, and nobody else: not updates, not
//! [`Tree::flush`](crate::Tree::flush), not a kill, not another collector. A callback that panics breaks *that collector for
//! that group*:
//!
//! - reads of the group say so from then on ([`CollectorError::is_broken`]) instead of returning a number that is wrong;
//! - reads of its ancestors tell how many groups below are broken ([`Collected::broken_below`]); what those had handed
//!   over before stays in;
//! - what is lost is what the callback had taken from its `Local` and not returned;
//! - all other groups stay exact, and this and later flushes go on.
//!
//! Where it is `merge` that panics, the group whose total it was merging *into* is the broken one.
//!
//! # Callbacks that call back
//! A callback may use the tree as it likes: add, flush, create, kill, attach, update. It must not ask
//! *collectors* for anything: two that waited for each other would wait for ever. Such a call is refused at
//! once, with [`CollectorError::is_nested`].

mod attached;
mod error;
mod flush;
mod guard;
mod seat;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use attached::Attached;
pub use error::CollectorError;
pub use flush::CollectReport;
pub(crate) use seat::Seats;

use crate::group::Group;
use crate::stats::Stats;
use flush::Flusher;
use guard::Within;
use seat::{Seat, Slots};

/// Says what a group keeps on each CPU, and how that becomes a total.
///
/// # Examples
/// The longest request of each tenant, and of everything above it:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use submeter::{Collect, Origin, Schema, Tree};
///
/// struct Longest;
///
/// impl Collect for Longest {
///     type Local = AtomicU64;
///     type Delta = u64;
///
///     fn flush(&self, _: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
///         *delta = local.load(Relaxed);
///     }
///
///     fn merge(&self, delta: &u64, into: &mut u64) {
///         *into = (*into).max(*delta);
///     }
/// }
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let longest = tree.collector("longest", Longest);
/// let web = longest.attach(&tree.get_or_create("/acme/web")?);
///
/// web.update(|local| local.fetch_max(17, Relaxed));
/// web.update(|local| local.fetch_max(5, Relaxed));
/// assert_eq!(longest.sum(tree.root(), |seen| *seen.total)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// There a BPF program is attached to a hook that runs inside every flush of every group, under the flush's lock;
/// here a collector has a flush of its own, and is called for groups that it marked only.
pub trait Collect: Send + Sync + 'static {
    /// What one group keeps on one CPU. Several threads may be in it at once, because a thread may be preempted in an
    /// update and go on elsewhere: use atomics. They rarely contend, so `Relaxed` ones are cheap.
    type Local: Default + Send + Sync + 'static;

    /// What is new since the last flush; also what a total is.
    type Delta: Default + Send + Sync + 'static;

    /// Takes what is new out of `local` and adds it to `delta`, which is empty.
    ///
    /// Called for each group and CPU that was updated since the last flush. Updates go on
    /// meanwhile: what is taken must be taken by one atomic operation (`swap`, `fetch_sub`), or
    /// remembered in `local` and subtracted. Nothing may be new.
    fn flush(&self, origin: &Origin<'_>, local: &Self::Local, delta: &mut Self::Delta);

    /// Adds `delta` to `into`. Called in any order of the children, so it must be commutative and associative.
    fn merge(&self, delta: &Self::Delta, into: &mut Self::Delta);
}

/// Says where a `Local` is from.
#[derive(Debug)]
pub struct Origin<'a> {
    path: &'a str,
    cpu: usize,
}

impl Origin<'_> {
    /// Returns the group's path. A path and no [`Group`]: a group that was killed may be gone by now,
    /// and a new one may have its name.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path
    }

    /// Returns the CPU; where the kernel does not tell it cheaply, or beyond 64 CPUs, a number that several share.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

/// What is known of one group: borrowed, because a total may be large.
#[derive(Debug)]
#[non_exhaustive]
pub struct Collected<'a, D> {
    /// Own plus descendants', those included that are gone, as of the last flush.
    pub total: &'a D,
    /// How long ago that flush began; where there was none, how long ago the collector was made.
    pub age: Duration,
    /// How many groups below this one are broken: `total` lacks what their callbacks lost.
    pub broken_below: u64,
}

/// Handles one collector of one tree. Cloning is a pointer copy. When the last clone goes, so does what it
/// collected; what is [`Attached`] may still be updated, to no effect.
///
/// What a group that is gone had collected is kept until the next flush *of the collector*: where groups come and go
/// and nobody asks, flush it now and then, say in [`FlusherBuilder::also`](crate::FlusherBuilder::also).
pub struct Collector<C: Collect> {
    inner: Arc<Inner<C>>,
}

struct Inner<C: Collect> {
    collect: C,
    name: Box<str>,
    /// Tells the tree that it is of. Weak: a collector does not keep a tree.
    stats: Weak<Stats>,
    slots: Mutex<Slots>,
    /// Groups that the flusher does not know yet. Locked for a push or a swap only.
    births: Mutex<Vec<Arc<Seat<C>>>>,
    /// Slots of groups that are gone. Locked as `births`.
    deaths: Mutex<Vec<u32>>,
    /// The collector's own: held while callbacks run.
    flusher: Mutex<Flusher<C>>,
    /// Flushes begun: what coalescing compares.
    begun: AtomicU64,
    /// When the last complete flush began, in ns after `epoch`.
    as_of_ns: AtomicU64,
    epoch: Instant,
}

impl<C: Collect> Collector<C> {
    pub(crate) fn new(name: &str, collect: C, stats: &Arc<Stats>) -> Collector<C> {
        Collector {
            inner: Arc::new(Inner {
                collect,
                name: name.into(),
                stats: Arc::downgrade(stats),
                slots: Mutex::default(),
                births: Mutex::default(),
                deaths: Mutex::default(),
                flusher: Mutex::new(Flusher::new()),
                begun: AtomicU64::new(0),
                as_of_ns: AtomicU64::new(0),
                epoch: Instant::now(),
            }),
        }
    }

    /// Returns its name, which its errors say.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns what it was made of.
    #[must_use]
    pub fn get_ref(&self) -> &C {
        &self.inner.collect
    }

    /// Makes a handle for updates of a group. Takes locks and allocates: attach once, keep the handle.
    ///
    /// A group that was killed may still be attached to, for as long as there is a handle to it; its
    /// ancestors get what it collects.
    ///
    /// # Panics
    /// When the group is of another tree.
    #[must_use]
    pub fn attach(&self, group: &Group) -> Attached<C> {
        Attached::new(group.clone(), self.seat_or_create(group))
    }

    /// Brings all totals up to date: every update that returned before this call is in. Calls back for
    /// each group and CPU that changed; concurrent callers share a flush where they can.
    ///
    /// # Errors
    /// [Nested](CollectorError::is_nested): called from a callback or from within a read. A callback that panics is no error here: see
    /// [`CollectReport::panics`].
    pub fn flush(&self) -> Result<CollectReport, CollectorError> {
        let within = Within::callback().ok_or_else(|| CollectorError::nested(self.name()))?;
        let report = self.inner.flush();
        drop(within);
        Ok(report)
    }

    /// Shows a group's total as of the last flush. Waits for nothing but a merge into it that is under way.
    ///
    /// `read` may read other groups, but flush nothing.
    ///
    /// # Errors
    /// [Broken](CollectorError::is_broken), when a callback for the group panicked; [nested](CollectorError::is_nested), when called from a callback.
    ///
    /// # Panics
    /// When the group is of another tree.
    pub fn read<R>(
        &self,
        group: &Group,
        read: impl FnOnce(&Collected<'_, C::Delta>) -> R,
    ) -> Result<R, CollectorError> {
        let _within = Within::read().ok_or_else(|| CollectorError::nested(self.name()))?;
        // Acquire: before the total, so that the total is of this flush or a later one; pairs with the
        // Release in `Inner::flush`.
        let as_of = Duration::from_nanos(self.inner.as_of_ns.load(Ordering::Acquire));
        let age = self.inner.epoch.elapsed().saturating_sub(as_of);
        let Some(seat) = self.seat(group) else {
            // Neither it nor anything below was ever attached.
            return Ok(read(&Collected { total: &C::Delta::default(), age, broken_below: 0 }));
        };
        // Recursive: `read` may come here again, and must not wait for a flush that waits for it.
        let total = seat.total.read_recursive();
        if let Some(message) = &total.broken {
            return Err(CollectorError::broken(self.name(), group.path(), message));
        }
        Ok(read(&Collected { total: &total.value, age, broken_below: total.broken_below }))
    }

    /// Flushes, then [reads](Collector::read): every update that returned before this call is in.
    ///
    /// # Errors
    /// As `flush` and `read`.
    ///
    /// # Panics
    /// When the group is of another tree.
    pub fn sum<R>(
        &self,
        group: &Group,
        read: impl FnOnce(&Collected<'_, C::Delta>) -> R,
    ) -> Result<R, CollectorError> {
        self.flush()?;
        self.read(group, read)
    }

    fn seat(&self, group: &Group) -> Option<Arc<Seat<C>>> {
        self.check(group);
        group.seats().find(&self.inner)
    }

    fn seat_or_create(&self, group: &Group) -> Arc<Seat<C>> {
        self.check(group);
        // Parents first: a seat refers to the one above.
        let mut missing = Vec::new();
        let mut at = Some(group);
        let mut seat = None;
        while let Some(group) = at {
            seat = group.seats().find(&self.inner);
            if seat.is_some() {
                break;
            }
            missing.push(group);
            at = group.parent();
        }
        for group in missing.into_iter().rev() {
            seat = Some(group.seats().find_or_create(&self.inner, group.path(), seat));
        }
        seat.expect("the group's own, if none of its ancestors'")
    }

    fn check(&self, group: &Group) {
        let same = std::ptr::eq(self.inner.stats.as_ptr(), Arc::as_ptr(group.stats()));
        assert!(same, "the group belongs to another tree than the collector");
    }
}

impl<C: Collect> Inner<C> {
    /// Flushes, or waits for a flush that began after this call.
    fn flush(&self) -> CollectReport {
        // SeqCst: pairs with the increment below: a flush with a higher number takes its marks after this
        // load, so it covers every update that returned before it.
        let asked = self.begun.load(Ordering::SeqCst);
        let mut flusher = self.flusher.lock();
        if flusher.number > asked {
            return CollectReport { joined: true, ..flusher.report };
        }
        // SeqCst: see above; before the marks are taken.
        flusher.number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let start = Instant::now();
        // Deaths first: what the dead collected is marked, and taken below. Births after the marks: whoever
        // marked had its seat announced before.
        let deaths = std::mem::take(&mut *self.deaths.lock());
        self.slots.lock().share_sets(&mut flusher.sets);
        flusher.take_marked();
        let births = std::mem::take(&mut *self.births.lock());
        births.into_iter().for_each(|seat| flusher.learn(seat));
        flusher.carry_up(&self.collect);
        let gone = flusher.forget(&deaths);
        self.slots.lock().give(deaths);
        let as_of = start.duration_since(self.epoch);
        // Release: after the totals; pairs with the Acquire in `read`.
        self.as_of_ns.store(as_of.as_nanos() as u64, Ordering::Release);
        flusher.report.duration = start.elapsed();
        let report = flusher.report;
        drop(flusher);
        // Without the lock: they hold what is the user's, whose `drop` may take its time, or panic.
        gone.into_iter().for_each(guard::drop_quietly);
        report
    }
}

impl<C: Collect> Clone for Collector<C> {
    fn clone(&self) -> Self {
        Collector { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Collect> fmt::Debug for Collector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({})", self.name())
    }
}
