//! The tree: where groups are created, found and flushed.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use submeter_percpu::rcuref::pin;
use submeter_percpu::{PercpuOwner, TestClock};

use crate::error::Error;
use crate::metric::schema::{Metrics, Schema, Section};
use crate::metric::totals::Restored;
use crate::path;
use crate::stats::rstat::{FlushReport, Simulated};
use crate::tree::children;
use crate::tree::cpu_start::CpuStart;
use crate::tree::group::creation::OnCreate;
use crate::tree::group::{Group, GroupInner, TreeShared};
use crate::tree::tree_stats::TreeStats;

/// A tree of groups that share one [`Schema`]. Cloning is a pointer copy.
///
/// Dropping the last clone kills every group; handles that are still held keep working and keep
/// their storage, but groups can no longer be found or created.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
///
/// let web = tree.get_or_create("/acme/web")?;
/// web.add(requests, 3);
///
/// assert_eq!(tree.root().sum(requests), 3);
/// assert_eq!((tree.schema().metrics().len(), tree.group_count()), (1, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tree {
    inner: Arc<TreeInner>,
}

struct TreeInner {
    stats: Arc<TreeShared>,
    root: Group,
    /// Owns the root: dropping it kills the root.
    owner: PercpuOwner<GroupInner>,
    cpu_start: Option<CpuStart>,
    /// The values that checkpoints brought.
    restored: RwLock<Vec<Restored>>,
}

/// The default of [`TreeBuilder::groups_max`].
pub const GROUPS_MAX_DEFAULT: usize = 1 << 20;

/// A builder of a [`Tree`] with custom bounds.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::builder(Schema::builder().build()?).groups_max(1000).build()?;
/// assert_eq!(tree.group_count(), 1, "the root");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TreeBuilder {
    schema: Schema,
    groups_max: usize,
    simulated: Simulated,
}

impl TreeBuilder {
    /// Bounds the number of groups that exist at once, including killed ones that are not yet
    /// released.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::builder(Schema::builder().build()?).groups_max(2).build()?;
    /// tree.create("/web")?;
    /// assert!(tree.create("/mail").expect_err("the root counts").is_full());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn groups_max(mut self, groups_max: usize) -> Self {
        self.groups_max = groups_max;
        self
    }

    /// Makes a tree that behaves as if on a machine with `cpus` CPUs and without restartable
    /// sequences. For tests and benchmarks of what depends on the number of CPUs, such as error
    /// bounds, memory, and the work of a flush.
    ///
    /// A thread updates the words of the CPU that it has chosen with
    /// [`simulate_cpu`](submeter_percpu::Area::simulate_cpu) of the crate `submeter-percpu`. The
    /// simulation does not show the cost of transferring cache lines between that many real CPUs.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    /// use submeter_percpu::Area;
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::builder(schema.build()?).simulated_cpus(128).build()?;
    /// for cpu in 0..128 {
    ///     Area::simulate_cpu(cpu);
    ///     tree.root().add(requests, 1);
    /// }
    /// assert!(tree.root().read(requests).max_error >= 128);
    /// assert_eq!(tree.root().sum(requests), 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// [`build`](TreeBuilder::build) panics when `cpus` is 0.
    #[must_use]
    pub fn simulated_cpus(mut self, cpus: usize) -> Self {
        self.simulated.cpus = Some(cpus);
        self
    }

    /// Makes a tree whose rates, budgets and ages follow a clock that a test advances.
    ///
    /// A [`Flusher`](crate::Flusher), waits that block a thread, and CPU time still follow the
    /// system's clocks.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Rate, Schema, TestClock, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.rate_limit::<Count>("requests", "Requests");
    /// let clock = TestClock::new();
    /// let tree = Tree::builder(schema.build()?).test_clock(&clock).build()?;
    /// tree.root().set_rate(requests, Some(Rate::new(1, Duration::from_secs(3600))))?;
    ///
    /// tree.root().try_take(requests, 1)?;
    /// assert!(tree.root().try_take(requests, 1).is_err());
    /// clock.advance(Duration::from_secs(3600));
    /// tree.root().try_take(requests, 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn test_clock(mut self, clock: &TestClock) -> Self {
        self.simulated.clock = clock.into();
        self
    }

    /// Reserves address space and creates the root. If the schema declares CPU time, the first tree
    /// of a process also determines which clock to use; that takes a few milliseconds, or up to
    /// half a second on a busy machine.
    ///
    /// # Errors
    /// When the kernel refuses to reserve address space, or `groups_max` leaves no room for the
    /// root.
    pub fn build(self) -> Result<Tree, Error> {
        children::prepare();
        let stats = TreeStats::new(&self.schema, self.groups_max, self.simulated)?;
        let stats = Arc::new(TreeShared::new(stats));
        let (owner, root) = Group::new_root(Arc::clone(&stats))?;
        // Last, because the first tree of a process tests the machine's clocks.
        let cpu_start = CpuStart::of(&self.schema);
        Ok(Tree {
            inner: Arc::new(TreeInner {
                stats,
                root,
                owner,
                cpu_start,
                restored: RwLock::default(),
            }),
        })
    }
}

impl Tree {
    /// Creates a tree with only a root.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// assert_eq!(tree.root().path(), "/");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses to reserve address space.
    pub fn new(schema: Schema) -> Result<Tree, Error> {
        Tree::builder(schema).build()
    }

    /// Creates a tree whose groups have one set of metrics, and returns it with their keys.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Count, Counter, Metrics, Quota, Tree};
    ///
    /// #[derive(Metrics)]
    /// struct Keys {
    ///     /// Requests answered
    ///     answered: Counter<Count>,
    ///     /// Memory held
    ///     memory: Quota<Bytes>,
    /// }
    ///
    /// let (tree, keys) = Tree::with_metrics::<Keys>()?;
    /// tree.root().inc(keys.answered);
    /// let held = tree.root().try_charge(keys.memory, 4096)?;
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Tree::new), and whatever a schema refuses.
    pub fn with_metrics<M: Metrics>() -> Result<(Tree, M), Error> {
        let mut schema = Schema::builder();
        let keys = schema.declare();
        Ok((Tree::new(schema.build().map_err(Error::schema)?)?, keys))
    }

    /// Returns a builder for a tree with custom bounds.
    #[must_use]
    pub fn builder(schema: Schema) -> TreeBuilder {
        TreeBuilder { schema, groups_max: GROUPS_MAX_DEFAULT, simulated: Simulated::default() }
    }

    /// Returns the current schema. Each [`declare`](Tree::declare) makes a longer one, which begins
    /// with this one.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.inner.stats.schema()
    }

    /// Adds a set of metrics to the tree, and returns its keys: for libraries that count in any
    /// program's tree. All groups have these metrics from then on, existing and future ones, and
    /// exporters and pages show them.
    ///
    /// A metric that the tree already has (same name, kind, unit and buckets) is not added again:
    /// its existing key is returned. So it does not matter which declares first: the program,
    /// another thread, or another version of the library. A library should prefix its names, and
    /// declare them in each tree that it counts in, because keys belong to one tree.
    ///
    /// New metrics get a [section](crate::SchemaBuilder::section) of their own, or several if the
    /// set names some, with a number appended if the tree has one of that name (`io_2`). An update
    /// costs what it costs in any section. A group gets memory for them with its first such update:
    /// that update allocates, for each level up to one that was updated before. Where it must not,
    /// as in a signal handler, add 0 to one of them beforehand. Groups that are never
    /// updated stay as small as they were, and all other metrics stay as cheap. Each section
    /// reserves address space, and each flush and snapshot of the whole tree visits it.
    ///
    /// If there is no room left for a group's words of the section, its counts go to the nearest
    /// group above it that has them, so that the totals from there on up are right. Values that it
    /// [sets](Group::set) are left out.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Counter, Metrics, Schema, Tree};
    ///
    /// /// What a client of a database counts.
    /// #[derive(Metrics)]
    /// #[metrics(prefix = "db_")]
    /// struct Queries {
    ///     /// Queries sent
    ///     queries: Counter<Count>,
    /// }
    ///
    /// // The program's:
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    ///
    /// // The library's:
    /// let Queries { queries } = tree.declare()?;
    /// web.inc(queries);
    /// assert_eq!(tree.root().sum(queries), 1);
    ///
    /// let again: Queries = tree.declare()?;
    /// assert_eq!(again.queries, queries);
    /// assert_eq!(tree.schema().metric("db_queries").expect("added").help(), "Queries sent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Whatever a schema refuses (so a tree takes at most 15 such sets), a name that the tree has
    /// for another metric, a quota, rate limit, CPU time or event that was not in the schema from
    /// the start, or address space that the kernel refuses. Then nothing was added.
    pub fn declare<M: Metrics>(&self) -> Result<M, Error> {
        self.inner.root.declare()
    }

    /// Calls `hook` to set up each group that is created from now on, before a lookup can find it:
    /// a limit that is set only afterwards may miss the first charges. The caller must set up the
    /// groups that already exist, and those that are being created at the same time:
    /// [`Group::get_or_create_child`] and [`Group::children`] wait for these. The hook is called
    /// for as long as it lives; the tree does not keep it alive.
    ///
    /// To keep a closure in a struct, convert `hook` to an `Arc<dyn Any + Send + Sync>` after the
    /// call, because the type of a closure has no name.
    ///
    /// Each creation then costs one more lock and call. Not needed if the program creates all
    /// groups in one place and hands them out once they are set up.
    ///
    /// # Examples
    /// See [`OnCreate`].
    pub fn on_create<T: OnCreate + 'static>(&self, hook: &Arc<T>) {
        let hook: Weak<T> = Arc::downgrade(hook);
        self.root().on_create_all().add(hook);
    }

    /// Returns the root group, `/`.
    #[must_use]
    pub fn root(&self) -> &Group {
        &self.inner.root
    }

    pub(crate) fn stats(&self) -> &TreeStats {
        &self.inner.stats
    }

    pub(crate) fn cpu_start(&self) -> Option<CpuStart> {
        self.inner.cpu_start
    }

    /// Returns how many groups exist: the root, live groups, killed ones that a handle or a charge
    /// still holds, and released ones until the next flush or until 256 were released.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.inner.stats.group_count()
    }

    /// Finds a group: hashes each name of the path and probes a table for it, without a lock. It
    /// occasionally frees entries that other threads removed. For more than one update, keep the
    /// handle.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get(&self, path: &str) -> Option<Group> {
        let guard = pin();
        let mut found = None;
        for name in path::names(path).ok()? {
            let parent = found.as_ref().unwrap_or(&self.inner.root);
            found = Some(parent.child_under(name, &guard)?);
        }
        Some(match found {
            Some(group) => group,
            None => self.inner.root.clone(),
        })
    }

    /// Creates one group; its parent must exist.
    ///
    /// # Errors
    /// When the name is invalid, the parent is missing, a group of that name exists, or the tree is
    /// full.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn create(&self, path: &str) -> Result<Group, Error> {
        let names: Vec<&str> = path::names(path)?.collect();
        let Some((last, parents)) = names.split_last() else {
            return Err(Error::already_exists("/".to_owned()));
        };
        let mut group = self.inner.root.clone();
        for name in parents {
            let child = group.child(name);
            group = child.ok_or_else(|| Error::not_found(&path::join(group.path(), name)))?;
        }
        group.create_child(last)
    }

    /// Finds a group, creating it and its ancestors if they are missing.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.get_or_create("/acme/web")?;
    /// assert_eq!(tree.get_or_create("/acme/web")?, web);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a name is invalid or there are too many levels; nothing was created then. Or when the
    /// tree is full; the ancestors that still fitted remain.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get_or_create(&self, path: &str) -> Result<Group, Error> {
        let mut group = self.inner.root.clone();
        let mut names = path::names(path)?;
        loop {
            let missing = names.clone();
            let Some(name) = names.next() else { return Ok(group) };
            let Some(child) = group.child(name) else {
                // Checks all names before the first group is made: they may come from a client.
                path::check_below(group.path(), group.depth(), missing.clone())?;
                for name in missing {
                    group = group.get_or_create_child(name)?;
                }
                return Ok(group);
            };
            group = child;
        }
    }

    /// Brings every group's cached totals up to date: they include all updates that returned before
    /// this call. Costs time in proportion to what changed since the last flush, and at most one
    /// `membarrier` per section. Concurrent callers share a flush where possible.
    ///
    /// [Aggregators](crate::Aggregate) are flushed separately: a slow one delays no other flush.
    ///
    /// # Ordering
    /// An update returned *before* this call if it happened before it in the sense of the memory
    /// model: on the same thread, or on one whose later Release this thread has acquired, as by a
    /// join, a lock or a channel. A flag that both sides access with Relaxed orders nothing.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.create("/web")?.add(requests, 1);
    /// tree.flush();
    /// assert_eq!(tree.root().read(requests).value, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self) -> FlushReport {
        self.inner.stats.flush()
    }

    /// Like [`flush`](Tree::flush), but only for the metrics of one
    /// [section](crate::SchemaBuilder::section): changes in other sections cost nothing and are
    /// left for a later flush.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let main = tree.schema().section("main").expect("always there");
    /// tree.root().add(requests, 1);
    /// tree.flush_section(main);
    /// assert_eq!(tree.root().read(requests).value, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the section belongs to another tree's schema.
    pub fn flush_section(&self, section: Section) -> FlushReport {
        let report = self.inner.stats.flush_section(section.id);
        report.expect("the section belongs to the schema of another tree")
    }

    pub(crate) fn restored(&self) -> &RwLock<Vec<Restored>> {
        &self.inner.restored
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("groups", &self.group_count()).finish_non_exhaustive()
    }
}

impl Drop for TreeInner {
    fn drop(&mut self) {
        // Parents own their children and children refer to their parents: without a kill, nothing
        // would ever be released.
        self.root.kill_tree(&self.owner);
    }
}
