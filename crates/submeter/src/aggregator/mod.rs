//! Aggregators: user-defined state for each group and CPU, merged up the tree by user-defined
//! functions.
//!
//! A counter is one number and adds up by itself. Other aggregates are not sums: the hottest keys,
//! the number of distinct users, the slowest query. An [`Aggregate`] defines what one group keeps
//! on one CPU, how to extract what is new, and how to merge two such deltas. The tree does the
//! rest, as it does for numbers: updates touch only the running CPU's state; a flush visits what
//! changed, children before parents; what a killed group collected stays in its parent.
//!
//! # What it costs
//! An update costs the closure, a fence and a few loads; a group's first update on a CPU allocates.
//! A flush costs one callback for each group and CPU that changed, and one merge for each level
//! above. Do not use an aggregator for a sum: [`Group::add`](crate::Group::add) needs neither a
//! fence nor a callback.
//!
//! # Isolation
//! Every aggregator has its own flush with its own lock, separate from that of the numbers. A slow
//! callback delays flushes of *that aggregator* and nothing else: not updates, not
//! [`Tree::flush`](crate::Tree::flush), not a kill, not another aggregator. A callback that panics
//! breaks *that aggregator for that group*:
//!
//! - reads of the group return an error from then on ([`AggregatorError::is_broken`]) instead of a
//!   wrong total;
//! - reads of its ancestors say how many groups below are broken ([`Aggregated::broken_below`]);
//!   what those propagated earlier is kept;
//! - only what the callback had taken from its `Local` and not returned is lost;
//! - all other groups stay exact, and this and later flushes continue.
//!
//! If `merge` panics, the group whose total it was merging *into* is broken.
//!
//! # Callbacks that call back
//! A callback may use the tree freely: add, flush, create, kill, attach, update. It must not flush
//! or read *aggregators*, because two that waited for each other would deadlock. Such a call fails
//! at once with [`AggregatorError::is_nested`].
//!
//! # In a forked child
//! The child has a copy of what was collected. If a thread of the parent was attaching a group or
//! flushing at the fork, any thread that attaches, flushes or reads in the child may wait forever:
//! call `exec` first.

mod attached;
mod error;
mod guard;
mod merge;
mod slot;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use submeter_percpu::contain::contain;

pub use attached::Attached;
pub use error::AggregatorError;
pub use merge::AggregateReport;

use crate::stats::flush::coalescer::Coalescer;
use crate::tree::group::{Group, TreeShared};
use crate::tree::tree::Tree;
use guard::Within;
use merge::MergeState;
use slot::{GroupSlot, SlotNumbers, find, find_or_create};

/// The definition of an aggregate: the state of a group on each CPU, and how that becomes a total.
///
/// # Examples
/// The longest request of each tenant, and of everything above it:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use submeter::{Aggregate, Origin, Schema, Tree};
///
/// struct Longest;
///
/// impl Aggregate for Longest {
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
/// let longest = tree.aggregator("longest", Longest);
/// let web = longest.attach(&tree.get_or_create("/acme/web")?);
///
/// web.update(|local| local.fetch_max(17, Relaxed));
/// web.update(|local| local.fetch_max(5, Relaxed));
/// assert_eq!(longest.sum(tree.root(), |seen| *seen.total)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// In Linux a BPF program is attached to a hook that runs inside every flush of every group, under
/// the flush's lock. Here an aggregator has its own flush, and is called only for groups that were
/// updated through it.
pub trait Aggregate: Send + Sync + 'static {
    /// The state of one group on one CPU. Several threads may use it at once, because a thread may
    /// be preempted during an update and continue on another CPU: use atomics. They rarely contend,
    /// so `Relaxed` operations are cheap.
    type Local: Default + Send + Sync + 'static;

    /// The changes since the last flush; also the type of a total.
    type Delta: Default + Send + Sync + 'static;

    /// Takes what is new out of `local` and adds it to `delta`, which is empty.
    ///
    /// Called for each group and CPU that was updated since the last flush. Updates continue while
    /// it runs: take a value with one atomic operation (`swap`, `fetch_sub`), or remember it in
    /// `local` and subtract it next time. There may be nothing new.
    fn flush(&self, origin: &Origin<'_>, local: &Self::Local, delta: &mut Self::Delta);

    /// Adds `delta` to `into`. Children are merged in any order, so it must be commutative and
    /// associative.
    fn merge(&self, delta: &Self::Delta, into: &mut Self::Delta);
}

/// The group and the CPU that a `Local` belongs to.
#[derive(Debug)]
pub struct Origin<'a> {
    path: &'a str,
    cpu: usize,
}

impl Origin<'_> {
    /// Returns the group's path. Not a [`Group`], because a killed group may have been released,
    /// and a new one may have its name.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path
    }

    /// Returns the CPU. If the kernel has no cheap way to determine it, or beyond 64 CPUs, several
    /// CPUs share a number.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

/// The total of one group with its age, borrowed, because a total may be large.
#[derive(Debug)]
#[non_exhaustive]
pub struct Aggregated<'a, D> {
    /// The total of the group and its descendants, including released ones, as of the last flush.
    pub total: &'a D,
    /// The time since that flush began or, before the first flush, since the aggregator was
    /// created.
    pub age: Duration,
    /// Number of broken groups below this one; `total` lacks what their callbacks lost.
    pub broken_below: u64,
}

/// A handle to one aggregator of one tree. Cloning is a pointer copy. Dropping the last clone
/// discards what it collected; [`Attached`] handles may still be updated, without effect.
///
/// What a released group collected is kept until the next flush *of the aggregator*. If groups come
/// and go but reads are rare, flush it from time to time, for example in
/// [`FlusherBuilder::also`](crate::FlusherBuilder::also).
pub struct Aggregator<C: Aggregate> {
    inner: Arc<AggregatorInner<C>>,
}

struct AggregatorInner<C: Aggregate> {
    aggregate: C,
    name: Box<str>,
    /// Identifies the tree. Weak: an aggregator does not keep the tree alive.
    tree: Weak<TreeShared>,
    numbers: Mutex<SlotNumbers>,
    /// The aggregator's own flushes: locked while callbacks run.
    flushes: Coalescer<Arc<GroupSlot<C>>, MergeState<C>>,
}

impl Tree {
    /// Adds an aggregator: user-defined state for each group and CPU, flushed separately from the
    /// numbers. See [`Aggregate`].
    ///
    /// The tree keeps no reference to the aggregator, which lives as long as the returned handle.
    /// `name` only appears in its errors.
    ///
    /// # Examples
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use submeter::{Aggregate, Origin, Schema, Tree};
    ///
    /// /// A sum of what groups reported, written like any other aggregate.
    /// struct Total;
    ///
    /// impl Aggregate for Total {
    ///     type Local = AtomicU64;
    ///     type Delta = u64;
    ///
    ///     fn flush(&self, _: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
    ///         *delta = local.swap(0, Relaxed);
    ///     }
    ///
    ///     fn merge(&self, delta: &u64, into: &mut u64) {
    ///         *into += delta;
    ///     }
    /// }
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let total = tree.aggregator("total", Total);
    /// total.attach(tree.root()).update(|local| local.fetch_add(2, Relaxed));
    /// assert_eq!(total.sum(tree.root(), |seen| *seen.total)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn aggregator<C: Aggregate>(&self, name: &str, aggregate: C) -> Aggregator<C> {
        Aggregator::new(name, aggregate, self.root().tree_stats())
    }
}

impl<C: Aggregate> Aggregator<C> {
    fn new(name: &str, aggregate: C, tree: &Arc<TreeShared>) -> Aggregator<C> {
        Aggregator {
            inner: Arc::new(AggregatorInner {
                aggregate,
                name: name.into(),
                tree: Arc::downgrade(tree),
                numbers: Mutex::default(),
                flushes: Coalescer::new(MergeState::new(), tree.clock().clone()),
            }),
        }
    }

    /// Returns its name, as it appears in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the [`Aggregate`] that it was created with.
    #[must_use]
    pub fn get_ref(&self) -> &C {
        &self.inner.aggregate
    }

    /// Creates a handle for updates of a group. Takes locks and allocates: attach once and keep the
    /// handle.
    ///
    /// A killed group can still be attached to as long as there is a handle to it; its ancestors
    /// get what it collects.
    ///
    /// # Panics
    /// When the group belongs to another tree.
    #[must_use]
    pub fn attach(&self, group: &Group) -> Attached<C> {
        Attached::new(group.clone(), self.slot_or_create(group))
    }

    /// Brings all totals up to date: they include every update that returned before this call.
    /// Calls back for each group and CPU that changed; concurrent callers share a flush where
    /// possible.
    ///
    /// # Errors
    /// [Nested](AggregatorError::is_nested) if called from a callback or from within a read. A
    /// callback that panics is not an error here: see [`AggregateReport::panics`].
    pub fn flush(&self) -> Result<AggregateReport, AggregatorError> {
        let within = Within::callback().ok_or_else(|| AggregatorError::nested(self.name()))?;
        let report = self.inner.flush();
        drop(within);
        Ok(report)
    }

    /// Lends a group's total as of the last flush to `read`. Waits only for a merge into it that is
    /// in progress.
    ///
    /// `read` may read other groups, but must not flush.
    ///
    /// # Errors
    /// [Broken](AggregatorError::is_broken) if a callback for the group panicked;
    /// [nested](AggregatorError::is_nested) if called from a callback.
    ///
    /// # Panics
    /// When the group belongs to another tree.
    pub fn read<R>(
        &self,
        group: &Group,
        read: impl FnOnce(&Aggregated<'_, C::Delta>) -> R,
    ) -> Result<R, AggregatorError> {
        let _within = Within::read().ok_or_else(|| AggregatorError::nested(self.name()))?;
        // Read before the total, so that the total is from this flush or a later one.
        let age = self.inner.flushes.age(self.inner.flushes.as_of_ns());
        let Some(slot) = self.slot(group) else {
            // Neither the group nor a descendant was ever attached.
            return Ok(read(&Aggregated { total: &C::Delta::default(), age, broken_below: 0 }));
        };
        // Recursive, because `read` may call this again and must not wait for a flush that waits
        // for it.
        let total = slot.total.read_recursive();
        if let Some(message) = &total.broken {
            return Err(AggregatorError::broken(self.name(), group.path(), message));
        }
        Ok(read(&Aggregated { total: &total.value, age, broken_below: total.broken_below }))
    }

    /// Flushes, then [reads](Aggregator::read): the total includes every update that returned
    /// before this call.
    ///
    /// # Errors
    /// The same as `flush` and `read`.
    ///
    /// # Panics
    /// When the group belongs to another tree.
    pub fn sum<R>(
        &self,
        group: &Group,
        read: impl FnOnce(&Aggregated<'_, C::Delta>) -> R,
    ) -> Result<R, AggregatorError> {
        self.flush()?;
        self.read(group, read)
    }

    fn slot(&self, group: &Group) -> Option<Arc<GroupSlot<C>>> {
        self.check(group);
        find(group.extras(), &self.inner)
    }

    fn slot_or_create(&self, group: &Group) -> Arc<GroupSlot<C>> {
        self.check(group);
        // Parents first, because a slot refers to its parent's.
        let mut missing = Vec::new();
        let mut at = Some(group);
        let mut slot = None;
        while let Some(group) = at {
            slot = find(group.extras(), &self.inner);
            if slot.is_some() {
                break;
            }
            missing.push(group);
            at = group.parent();
        }
        for group in missing.into_iter().rev() {
            slot = Some(find_or_create(group.extras(), &self.inner, group.path(), slot));
        }
        slot.expect("the loop ends at the latest with the group's own slot")
    }

    fn check(&self, group: &Group) {
        let same = std::ptr::eq(self.inner.tree.as_ptr(), Arc::as_ptr(group.tree_stats()));
        assert!(same, "the group belongs to a different tree than the aggregator");
    }
}

impl<C: Aggregate> AggregatorInner<C> {
    /// Flushes, or waits for a flush that began after this call.
    fn flush(&self) -> AggregateReport {
        let asked = self.flushes.ask();
        let mut state = self.flushes.lock();
        if self.flushes.covers(asked) {
            return AggregateReport { joined: true, ..state.report };
        }
        let flush = self.flushes.begin();
        // Deaths first: the state of released groups is marked, and taken below. Births come after
        // the marks, because a group is announced before it is marked.
        let mut deaths = self.flushes.take_deaths(usize::MAX);
        self.numbers.lock().share_sets(&mut state.sets);
        state.take_marked();
        state.learn(self.flushes.take_births(usize::MAX));
        state.propagate(&self.aggregate);
        let gone = state.forget(&mut deaths);
        self.numbers.lock().give(deaths);
        self.flushes.complete(&flush);
        state.report.duration = self.flushes.age(flush.as_of_ns);
        let report = state.report;
        drop(state);
        // After the lock is released: the slots hold the user's values, whose `drop` may be slow or
        // panic.
        for slot in gone {
            let _ = contain(|| drop(slot));
        }
        report
    }
}

impl<C: Aggregate> Clone for Aggregator<C> {
    fn clone(&self) -> Self {
        Aggregator { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Aggregate> fmt::Debug for Aggregator<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aggregator({})", self.name())
    }
}
