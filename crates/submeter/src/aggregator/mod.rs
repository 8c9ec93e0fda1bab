//! Aggregators: state of the user's own for each group and CPU, merged up the tree by the user's
//! own functions.
//!
//! A counter is one number and adds up by itself. What tenants do is often something else: which
//! keys were hot, how many users there were, the slowest query. A [`Aggregate`] says what one group
//! keeps on one CPU, how to take what is new out of it, and how to merge two of those; the tree
//! does the rest, as it does for numbers: updates touch the running CPU's state only, a flush
//! visits what changed, child before parent, and what a killed group collected stays in its parent.
//!
//! # What it costs
//! An update costs the closure, a fence and a few loads; the first one of a group on a CPU
//! allocates. A flush costs one callback for each group and CPU that changed, and one merge for
//! each level above. Do not use it for what is a sum: [`Group::add`](crate::Group::add) needs no
//! fence and no callback.
//!
//! # Who can harm whom
//! Every aggregator has its own flush, with its own lock, apart from the numbers'. A callback that
//! takes its time delays flushes of *that aggregator* and nothing else: not updates, not
//! [`Tree::flush`](crate::Tree::flush), not a kill, not another aggregator. A callback that panics
//! breaks *that aggregator for that group*:
//!
//! - reads of the group say so from then on ([`AggregatorError::is_broken`]) instead of returning a
//!   number that is wrong;
//! - reads of its ancestors return how many groups below are broken ([`Aggregated::broken_below`]);
//!   what those had handed over before stays in;
//! - what is lost is what the callback had taken from its `Local` and not returned;
//! - all other groups stay exact, and this and later flushes go on.
//!
//! Where it is `merge` that panics, the group whose total it was merging *into* is the broken one.
//!
//! # Callbacks that call back
//! A callback may use the tree as it likes: add, flush, create, kill, attach, update. It must not
//! ask *aggregators* for anything: two that waited for each other would never return. Such a call
//! is refused at once, with [`AggregatorError::is_nested`].

mod attached;
mod error;
mod guard;
mod merge;
mod slot;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

pub use attached::Attached;
pub use error::AggregatorError;
pub use merge::AggregateReport;

use crate::flush::coalescer::Coalescer;
use crate::group::Group;
use crate::tree::Tree;
use crate::tree_stats::TreeStats;
use guard::Within;
use merge::MergeState;
use slot::{GroupSlot, SlotNumbers, find, find_or_create};

/// What a group keeps on each CPU, and how that becomes a total.
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
/// There a BPF program is attached to a hook that runs inside every flush of every group, under the
/// flush's lock; here an aggregator has a flush of its own, and is called for groups that it marked
/// only.
pub trait Aggregate: Send + Sync + 'static {
    /// What one group keeps on one CPU. Several threads may be in it at once, because a thread may
    /// be preempted in an update and go on elsewhere: use atomics. They rarely contend, so
    /// `Relaxed` ones are cheap.
    type Local: Default + Send + Sync + 'static;

    /// What is new since the last flush; also what a total is.
    type Delta: Default + Send + Sync + 'static;

    /// Takes what is new out of `local` and adds it to `delta`, which is empty.
    ///
    /// Called for each group and CPU that was updated since the last flush. Updates go on
    /// while it runs: what is taken must be taken by one atomic operation (`swap`, `fetch_sub`), or
    /// remembered in `local` and subtracted. Nothing may be new.
    fn flush(&self, origin: &Origin<'_>, local: &Self::Local, delta: &mut Self::Delta);

    /// Adds `delta` to `into`. Called in any order of the children, so it must be commutative and
    /// associative.
    fn merge(&self, delta: &Self::Delta, into: &mut Self::Delta);
}

/// The group and the CPU that a `Local` is from.
#[derive(Debug)]
pub struct Origin<'a> {
    path: &'a str,
    cpu: usize,
}

impl Origin<'_> {
    /// Returns the group's path. A path and no [`Group`]: a group that was killed may be gone by
    /// now, and a new one may have its name.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path
    }

    /// Returns the CPU; where the kernel has no cheap way to ask, or beyond 64 CPUs, a number that
    /// several share.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }
}

/// What is known of one group: borrowed, because a total may be large.
#[derive(Debug)]
#[non_exhaustive]
pub struct Aggregated<'a, D> {
    /// Own plus descendants', those included that are gone, as of the last flush.
    pub total: &'a D,
    /// How long ago that flush began; where there was none, how long ago the aggregator was made.
    pub age: Duration,
    /// How many groups below this one are broken: `total` lacks what their callbacks lost.
    pub broken_below: u64,
}

/// A handle to one aggregator of one tree. Cloning is a pointer copy. When the last clone goes, so
/// does what it collected; what is [`Attached`] may still be updated, to no effect.
///
/// What a group that is gone had collected is kept until the next flush *of the aggregator*: where
/// groups come and go and reads are rare, flush it now and then, say in
/// [`FlusherBuilder::also`](crate::FlusherBuilder::also).
pub struct Aggregator<C: Aggregate> {
    inner: Arc<AggregatorInner<C>>,
}

struct AggregatorInner<C: Aggregate> {
    aggregate: C,
    name: Box<str>,
    /// Identifies the tree. Weak: an aggregator does not keep a tree.
    tree: Weak<TreeStats>,
    numbers: Mutex<SlotNumbers>,
    /// The aggregator's own flushes: locked while callbacks run.
    flushes: Coalescer<Arc<GroupSlot<C>>, MergeState<C>>,
}

impl Tree {
    /// Adds an aggregator: state of the user's own for each group and CPU, flushed apart from the
    /// numbers. See [`Aggregate`].
    ///
    /// The tree does not know it afterwards: it lives as long as the handle that this returns, and
    /// `name` is only what its errors call it.
    ///
    /// # Examples
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use submeter::{Aggregate, Origin, Schema, Tree};
    ///
    /// /// The sum of what groups reported, as any other aggregate would do it.
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
    fn new(name: &str, aggregate: C, tree: &Arc<TreeStats>) -> Aggregator<C> {
        Aggregator {
            inner: Arc::new(AggregatorInner {
                aggregate,
                name: name.into(),
                tree: Arc::downgrade(tree),
                numbers: Mutex::default(),
                flushes: Coalescer::new(MergeState::new()),
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
        &self.inner.aggregate
    }

    /// Makes a handle for updates of a group. Takes locks and allocates: attach once, keep the
    /// handle.
    ///
    /// A group that was killed may still be attached to, for as long as there is a handle to it;
    /// its ancestors get what it collects.
    ///
    /// # Panics
    /// When the group is of another tree.
    #[must_use]
    pub fn attach(&self, group: &Group) -> Attached<C> {
        Attached::new(group.clone(), self.slot_or_create(group))
    }

    /// Brings all totals up to date: every update that returned before this call is in. Calls back
    /// for each group and CPU that changed; concurrent callers share a flush where they can.
    ///
    /// # Errors
    /// [Nested](AggregatorError::is_nested): called from a callback or from within a read. A
    /// callback that panics is no error here: see [`AggregateReport::panics`].
    pub fn flush(&self) -> Result<AggregateReport, AggregatorError> {
        let within = Within::callback().ok_or_else(|| AggregatorError::nested(self.name()))?;
        let report = self.inner.flush();
        drop(within);
        Ok(report)
    }

    /// Lends a group's total as of the last flush to `read`. Waits for nothing but a merge into it
    /// that is under way.
    ///
    /// `read` may read other groups, but flush nothing.
    ///
    /// # Errors
    /// [Broken](AggregatorError::is_broken), when a callback for the group panicked;
    /// [nested](AggregatorError::is_nested), when called from a callback.
    ///
    /// # Panics
    /// When the group is of another tree.
    pub fn read<R>(
        &self,
        group: &Group,
        read: impl FnOnce(&Aggregated<'_, C::Delta>) -> R,
    ) -> Result<R, AggregatorError> {
        let _within = Within::read().ok_or_else(|| AggregatorError::nested(self.name()))?;
        // Before the total, so that the total is of this flush or a later one.
        let age = self.inner.flushes.age(self.inner.flushes.as_of_ns());
        let Some(slot) = self.slot(group) else {
            // Neither it nor anything below was ever attached.
            return Ok(read(&Aggregated { total: &C::Delta::default(), age, broken_below: 0 }));
        };
        // Recursive: `read` may come here again, and must not wait for a flush that waits for it.
        let total = slot.total.read_recursive();
        if let Some(message) = &total.broken {
            return Err(AggregatorError::broken(self.name(), group.path(), message));
        }
        Ok(read(&Aggregated { total: &total.value, age, broken_below: total.broken_below }))
    }

    /// Flushes, then [reads](Aggregator::read): every update that returned before this call is in.
    ///
    /// # Errors
    /// As `flush` and `read`.
    ///
    /// # Panics
    /// When the group is of another tree.
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
        find(group.attachments(), &self.inner)
    }

    fn slot_or_create(&self, group: &Group) -> Arc<GroupSlot<C>> {
        self.check(group);
        // Parents first: a slot refers to the one above.
        let mut missing = Vec::new();
        let mut at = Some(group);
        let mut slot = None;
        while let Some(group) = at {
            slot = find(group.attachments(), &self.inner);
            if slot.is_some() {
                break;
            }
            missing.push(group);
            at = group.parent();
        }
        for group in missing.into_iter().rev() {
            slot = Some(find_or_create(group.attachments(), &self.inner, group.path(), slot));
        }
        slot.expect("the group's own, if none of its ancestors'")
    }

    fn check(&self, group: &Group) {
        let same = std::ptr::eq(self.inner.tree.as_ptr(), Arc::as_ptr(group.tree_stats()));
        assert!(same, "the group belongs to another tree than the aggregator");
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
        // Deaths first: what the dead collected is marked, and taken below. Births after the marks:
        // a group is announced before it is marked.
        let mut deaths = self.flushes.take_deaths();
        self.numbers.lock().share_sets(&mut state.sets);
        state.take_marked();
        state.learn(self.flushes.take_births());
        state.propagate(&self.aggregate);
        let gone = state.forget(&mut deaths);
        self.numbers.lock().give(deaths);
        self.flushes.complete(&flush);
        state.report.duration = flush.elapsed();
        let report = state.report;
        drop(state);
        // Without the lock: they hold what is the user's, whose `drop` may take its time, or panic.
        gone.into_iter().for_each(guard::drop_quietly);
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
