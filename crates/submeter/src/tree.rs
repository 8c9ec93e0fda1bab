//! The tree: where groups are created, found and flushed.

use std::fmt;
use std::sync::Arc;

use submeter_percpu::PercpuOwner;

use crate::collector::{Collect, Collector};
use crate::error::Error;
use crate::flusher::FlusherBuilder;
use crate::group::{Group, GroupInner};
use crate::path;
use crate::rstat::FlushReport;
use crate::schema::{MetricSet, Schema};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::switch::CpuStart;

/// Holds a tree of groups that share one [`Schema`]. Cloning is a pointer copy.
///
/// Dropping the last clone kills every group; handles that are still held keep working and keep
/// their storage, but nothing can be found or created any more.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tree {
    inner: Arc<TreeInner>,
}

struct TreeInner {
    schema: Schema,
    stats: Arc<Stats>,
    root: Group,
    /// Decides the root's end.
    owner: PercpuOwner<GroupInner>,
    cpu_start: Option<CpuStart>,
}

/// The most groups that a tree holds unless [`TreeBuilder::groups_max`] says otherwise.
pub const GROUPS_MAX_DEFAULT: usize = 1 << 20;

/// Builds a [`Tree`] with other than the usual bounds.
#[derive(Debug)]
pub struct TreeBuilder {
    schema: Schema,
    groups_max: usize,
    /// On how many simulated CPUs, if not on the machine's.
    simulated: Option<usize>,
}

impl TreeBuilder {
    /// Bounds the number of groups that exist at once, the dying included.
    #[must_use]
    pub fn groups_max(mut self, groups_max: usize) -> Self {
        self.groups_max = groups_max;
        self
    }

    /// Makes a tree that behaves as on a machine of `cpus` CPUs without sequences: for tests and benches of what
    /// depends on the number of CPUs, such as error bounds, memory, and the work of a flush.
    ///
    /// A thread updates on the CPU that [`simulate_cpu`](crate::percpu::Area::simulate_cpu) named to it. What it costs
    /// that many real CPUs to take lines from each other, no simulation shows.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree, percpu::Area};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::builder(schema.build()?).simulated_cpus(128).build()?;
    /// for cpu in 0..128 {
    ///     Area::simulate_cpu(cpu);
    ///     tree.root().add(requests, 1);
    /// }
    /// assert!(tree.root().read(requests).bound >= 128);
    /// assert_eq!(tree.root().sum(requests), 128);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// [`build`](TreeBuilder::build) does when `cpus` is 0.
    #[must_use]
    pub fn simulated_cpus(mut self, cpus: usize) -> Self {
        self.simulated = Some(cpus);
        self
    }

    /// Reserves address space and creates the root. Where the schema declares CPU time, the first tree of a process also
    /// finds out which clock serves: some milliseconds, on a busy machine up to half a second.
    ///
    /// # Errors
    /// When the kernel refuses the reservation of address space.
    pub fn build(self) -> Result<Tree, Error> {
        let stats = Arc::new(Stats::new(&self.schema, self.groups_max, self.simulated)?);
        let (owner, root) = Group::new_root(Arc::clone(&stats))?;
        // Last: the first tree of a process tests what the machine can do.
        let cpu_start = CpuStart::of(&self.schema);
        Ok(Tree {
            inner: Arc::new(TreeInner { schema: self.schema, stats, root, owner, cpu_start }),
        })
    }
}

impl Tree {
    /// Creates a tree that has only its root.
    ///
    /// # Errors
    /// When the kernel refuses the reservation of address space.
    pub fn new(schema: Schema) -> Result<Tree, Error> {
        Tree::builder(schema).build()
    }

    /// Starts a tree with other than the usual bounds.
    #[must_use]
    pub fn builder(schema: Schema) -> TreeBuilder {
        TreeBuilder { schema, groups_max: GROUPS_MAX_DEFAULT, simulated: None }
    }

    /// Returns the schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// Returns the root group, `/`.
    #[must_use]
    pub fn root(&self) -> &Group {
        &self.inner.root
    }

    pub(crate) fn cpu_start(&self) -> Option<CpuStart> {
        self.inner.cpu_start
    }

    /// Returns how many groups exist, the root and the dying included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.stats.len()
    }

    /// Always false: the root lives as long as its tree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Finds a group. Takes one shared lock a level: resolve once, keep the handle.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Group> {
        let mut group = self.inner.root.clone();
        for name in path::names(path).ok()? {
            group = group.child(name)?;
        }
        Some(group)
    }

    /// Creates one group; its parent must exist.
    ///
    /// # Errors
    /// A bad name, no such parent, a group of that name, or a tree that is full.
    pub fn create(&self, path: &str) -> Result<Group, Error> {
        let names: Vec<&str> = path::names(path)?.collect();
        let Some((last, parents)) = names.split_last() else {
            return Err(Error::exists("/".to_owned()));
        };
        let mut group = self.inner.root.clone();
        for name in parents {
            group = group
                .child(name)
                .ok_or_else(|| Error::not_found(&path::join(group.path(), name)))?;
        }
        group.create(last)
    }

    /// Finds a group, creating it and its ancestors where they are missing.
    ///
    /// # Errors
    /// A bad name, or a tree that is full.
    pub fn get_or_create(&self, path: &str) -> Result<Group, Error> {
        let mut group = self.inner.root.clone();
        for name in path::names(path)? {
            group = group.child_or_create(name)?;
        }
        Ok(group)
    }

    /// Brings every group's cached totals up to date: all updates that returned before this call
    /// are in. Costs time in proportion to what changed since the last flush, and at most one
    /// `membarrier` for each set of metrics. Concurrent callers share a flush where they can.
    ///
    /// What [collectors](crate::Collect) hold is flushed apart, by them: one that is slow delays nobody else.
    pub fn flush(&self) -> FlushReport {
        self.inner.stats.flush()
    }

    /// As [`flush`](Tree::flush), for the metrics of one [set](crate::SchemaBuilder::set) only: what changed in others costs
    /// nothing and stays to be flushed.
    ///
    /// # Panics
    /// When the set is of another tree's schema.
    pub fn flush_set(&self, set: MetricSet) -> FlushReport {
        let sets = self.inner.schema.sets();
        let index = sets.iter().position(|known| known.id == set.id);
        self.inner.stats.flush_set(index.expect("the set belongs to the schema of another tree"))
    }

    /// Describes a thread that flushes this tree, for readers of what is cached. Nothing requires one. See [`Flusher`](crate::Flusher).
    pub fn flusher(&self) -> FlusherBuilder {
        FlusherBuilder::new(self.clone())
    }

    /// Adds a collector: state of the user's own for each group and CPU, flushed apart from the numbers. See [`Collect`].
    ///
    /// The tree does not know it afterwards: it lives as long as the handle that this returns, and `name` is only
    /// what its errors call it.
    pub fn collector<C: Collect>(&self, name: &str, collect: C) -> Collector<C> {
        Collector::new(name, collect, &self.inner.stats)
    }

    /// Flushes, then copies every group's values at one moment: in a snapshot a parent's value is
    /// its own plus its children's, exactly. Costs time and memory in proportion to the tree.
    ///
    /// Where metrics are split into sets, that holds in each of them; one set may know of an update, and the
    /// next not yet of one that came before it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.inner.schema, &self.inner.stats, &self.inner.root)
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("groups", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for TreeInner {
    fn drop(&mut self) {
        // Parents own their children and children refer to their parents: nothing would ever end.
        self.root.kill_tree(&self.owner);
    }
}
