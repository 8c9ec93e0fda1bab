//! A group: one tenant, or one level of tenants.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use submeter_percpu::percpu_ref::Options;
use submeter_percpu::{PercpuArc, PercpuOwner};

use crate::children::Children;
use crate::collector::Seats;
use crate::error::Error;
use crate::histogram::HistogramSnapshot;
use crate::limit::{Charge, LimitError, Limits, Usage};
use crate::meter::Meter;
use crate::path;
use crate::reading::{Reading, Scalar, Tolerance};
use crate::rstat::{FlushReport, Leaf};
use crate::schema::{Counter, Gauge, Histogram, Key, Resource, Schema};
use crate::stats::Stats;
use crate::unit::{NO_BATCH_MASK, Unit};

mod life;

/// Handles one group: resolve it once, keep it, update through it. Cloning and dropping cost an add each
/// on the running CPU's own word, so that every request may hold the group that it works for.
///
/// An update costs about one add on the running CPU's own word, takes no lock, makes no syscall and
/// allocates nothing; ancestors learn of it at the next flush. A handle keeps the group's storage,
/// not its name: after [`kill`](Group::kill) updates still count, for the parent's total.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: PercpuArc<GroupInner>,
}

/// In this order, in which what every update and every switch looks at comes first: the compiler's own
/// order spreads it over three cache lines, each of which a switch among many groups would miss.
#[repr(C)]
pub(crate) struct GroupInner {
    /// The per-CPU words.
    leaf: Leaf,
    /// The number of the first set, whose words `leaf` has; here because every update compares it.
    set_id: u32,
    depth: u8,
    /// Guarded by `children`.
    dead: AtomicBool,
    /// Its number in this process: unlike its address, never another group's.
    id: u64,
    /// The words of the other sets; `None` where there is one only, as most schemas have.
    others: Option<Box<Others>>,
    pub(crate) limits: Limits,
    stats: Arc<Stats>,
    /// What collectors keep of it. Before `parent`, as all that tells a flusher of the group's end: children end first.
    seats: Seats,
    parent: Option<Group>,
    /// Live children by name. Guards `dead` too: a group is killed with this lock held for
    /// writing, so no child is created in a group that is dying.
    children: RwLock<Children>,
}

/// In the schema's order.
struct Others(Box<[OtherLeaf]>);

/// The words of a set other than the first.
struct OtherLeaf {
    set_id: u32,
    leaf: Leaf,
}

impl GroupInner {
    fn others(&self) -> &[OtherLeaf] {
        self.others.as_ref().map_or(&[], |others| &others.0)
    }
}

impl Group {
    /// Returns what decides the root's end, and the root.
    pub(crate) fn new_root(stats: Arc<Stats>) -> Result<(PercpuOwner<GroupInner>, Group), Error> {
        Self::new(stats, None, "/".to_owned())
    }

    fn new(
        stats: Arc<Stats>,
        parent: Option<&Group>,
        mut path: String,
    ) -> Result<(PercpuOwner<GroupInner>, Group), Error> {
        let depth = parent.map_or(0, |p| p.inner.depth + 1);
        if usize::from(depth) > path::DEPTH_MAX {
            return Err(Error::depth(&path));
        }
        let leaf = Leaf::new(stats.first(), parent.map(|p| &p.inner.leaf))?;
        let schema = stats.schema();
        let others = schema.sets()[1..].iter().zip(stats.others()).enumerate();
        let others = others.map(|(index, (set, rstat))| {
            let above = parent.map(|p| &p.inner.others()[index].leaf);
            Ok(OtherLeaf { set_id: set.id, leaf: Leaf::new(rstat, above)? })
        });
        let others = others.collect::<Result<Box<[_]>, Error>>()?;
        // Kept as it is, once: the count's name is the group's path.
        path.shrink_to_fit();
        let options = Options::new().name(path);
        let inner = GroupInner {
            leaf,
            set_id: schema.id(),
            others: (!others.is_empty()).then(|| Box::new(Others(others))),
            limits: Limits::new(schema),
            stats,
            depth,
            dead: AtomicBool::new(false),
            id: next_id(),
            seats: Seats::default(),
            parent: parent.cloned(),
            children: RwLock::default(),
        };
        let (owner, inner) = PercpuArc::with(options, inner).map_err(Error::storage)?;
        Ok((owner, Group { inner }))
    }

    // ---- names -------------------------------------------------------------------------------

    /// Returns the absolute path, `/` for the root.
    #[must_use]
    pub fn path(&self) -> &str {
        self.inner.name()
    }

    /// Returns the last component of the path, `""` for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        path::last(self.path())
    }

    /// Returns the number of ancestors.
    #[must_use]
    pub fn depth(&self) -> usize {
        usize::from(self.inner.depth)
    }

    /// Returns the parent, or `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<&Group> {
        self.inner.parent.as_ref()
    }

    /// Returns the schema that its tree was made with.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.inner.stats.schema()
    }

    /// The number of its tree's schema, for a comparison that follows no pointer.
    #[inline]
    pub(crate) fn schema_id(&self) -> u32 {
        self.inner.set_id
    }

    /// Returns the live child called `name`: hashes the name, reads a lock and takes a reference.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Group> {
        self.inner.children.read().get(name)?.try_clone_live().map(|inner| Group { inner })
    }

    /// Returns the live children in the order of their names.
    #[must_use]
    pub fn children(&self) -> Vec<Group> {
        let children = self.inner.children.read();
        let live = children.iter().filter_map(|child| child.try_clone_live());
        let mut live: Vec<Group> = live.map(|inner| Group { inner }).collect();
        drop(children);
        live.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        live
    }

    /// Returns how many live children there are.
    #[must_use]
    pub fn children_len(&self) -> usize {
        self.inner.children.read().len()
    }

    /// Creates a child.
    ///
    /// # Errors
    /// A bad name, a child of that name, a group that was killed, or a tree that is full.
    pub fn create(&self, name: &str) -> Result<Group, Error> {
        self.create_child(name, false)
    }

    /// Finds a child, or creates it.
    ///
    /// # Errors
    /// A bad name, a group that was killed, or a tree that is full.
    pub fn child_or_create(&self, name: &str) -> Result<Group, Error> {
        if let Some(child) = self.child(name) {
            return Ok(child);
        }
        self.create_child(name, true)
    }

    fn create_child(&self, name: &str, or_get: bool) -> Result<Group, Error> {
        path::check_name(name)?;
        match self.try_create_child(name, or_get) {
            // Not flushed where it was found out: with `children` locked that would wait for a
            // snapshot, which waits for `children`.
            Err(error) if error.wants_flush() => {
                self.inner.stats.flush();
                self.try_create_child(name, or_get)
            }
            result => result,
        }
    }

    fn try_create_child(&self, name: &str, or_get: bool) -> Result<Group, Error> {
        let mut children = self.inner.children.write();
        // Relaxed: written only with `children` held for writing, as it is here.
        if self.inner.dead.load(Ordering::Relaxed) {
            return Err(Error::dead(self.path()));
        }
        let path = path::join(self.path(), name);
        if let Some(child) = children.get(name).and_then(PercpuOwner::try_clone_live) {
            return if or_get { Ok(Group { inner: child }) } else { Err(Error::exists(path)) };
        }
        let inner = &self.inner;
        let (owner, child) = Group::new(Arc::clone(&inner.stats), Some(self), path)?;
        children.insert(owner);
        Ok(child)
    }

    // ---- updates -----------------------------------------------------------------------------

    /// Adds to a counter.
    ///
    /// # Panics
    /// When the counter is of another tree's schema.
    #[inline]
    pub fn add<U: Unit>(&self, counter: Counter<U>, n: u64) {
        self.add_to(counter.key, 0, n.cast_signed(), U::KIND.batch_mask());
    }

    /// Moves a gauge up or down.
    ///
    /// # Panics
    /// When the gauge is of another tree's schema.
    #[inline]
    pub fn adjust<U: Unit>(&self, gauge: Gauge<U>, delta: i64) {
        self.add_to(gauge.key, 0, delta, U::KIND.batch_mask());
    }

    /// Records one value in a histogram: two adds.
    ///
    /// # Panics
    /// When the histogram is of another tree's schema.
    #[inline]
    pub fn record<U: Unit>(&self, histogram: Histogram<U>, value: u64) {
        self.record_many(histogram, value, 1);
    }

    /// Records a value `n` times, at the price of once: for what a batch measured together.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Buckets, Nanoseconds, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let latency = schema.histogram::<Nanoseconds>("latency", "Of requests", Buckets::LATENCY_NS);
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().record_many(latency, 5_000, 3);
    /// tree.flush();
    /// let seen = tree.root().histogram(latency);
    /// assert_eq!((seen.count(), seen.sum()), (3, 15_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the histogram is of another tree's schema.
    #[inline]
    pub fn record_many<U: Unit>(&self, histogram: Histogram<U>, value: u64, n: u64) {
        let bucket = histogram.buckets.index(value);
        // Distributions are read without a bound, so their adds need not carry.
        let sum = value.wrapping_mul(n).cast_signed();
        self.add_to(histogram.key, 0, sum, NO_BATCH_MASK);
        self.add_to(histogram.key, 1 + bucket, n.cast_signed(), NO_BATCH_MASK);
    }

    /// Adds to a word of a metric: of its first, or of one after it.
    #[inline]
    fn add_to(&self, key: Key, offset: usize, n: i64, batch_mask: u64) {
        if key.set == self.inner.set_id {
            self.inner.leaf.add(usize::from(key.slot) + offset, n, batch_mask);
        } else {
            self.add_elsewhere(key, offset, n, batch_mask);
        }
    }

    /// Not inlined: metrics of the first set are not to pay for the others.
    #[inline(never)]
    fn add_elsewhere(&self, key: Key, offset: usize, n: i64, batch_mask: u64) {
        self.leaf(key).add(usize::from(key.slot) + offset, n, batch_mask);
    }

    /// Finds the word of a counter or gauge, for updates that do not look for it again: see [`Meter`].
    ///
    /// # Panics
    /// When the metric is of another tree's schema.
    #[inline]
    #[must_use]
    pub fn meter<M: Scalar>(&self, metric: M) -> Meter<'_, M> {
        Meter::new(self, metric.key())
    }

    // ---- reads -------------------------------------------------------------------------------

    /// Reads the total that the last flush left, own plus descendants': O(1), with an error bound and an age.
    ///
    /// It flushes nothing, and nobody flushes unless asked to: without any flush the value stays 0, and the bound tells what it
    /// lacks. Where that is not good enough use [`read_within`](Group::read_within), or [`sum`](Group::sum) for the truth; a
    /// [`Flusher`](crate::Flusher) keeps values young for many readers.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().add(requests, 7);
    ///
    /// let reading = tree.root().read(requests);
    /// assert!(reading.value == 0 && reading.bound >= 7);
    /// tree.flush();
    /// let reading = tree.root().read(requests);
    /// assert_eq!((reading.value, reading.bound), (7, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric is of another tree's schema.
    #[must_use]
    pub fn read<M: Scalar>(&self, metric: M) -> Reading<M::Value> {
        let key = metric.key();
        let leaf = self.leaf(key);
        leaf.rstat().read(leaf, usize::from(key.slot), M::BATCH_MASK).map(M::value)
    }

    /// Flushes the metric's set in this group and below, then reads: every update that returned before this
    /// call is in.
    ///
    /// # Panics
    /// When the metric is of another tree's schema.
    #[must_use]
    pub fn sum<M: Scalar>(&self, metric: M) -> M::Value {
        let key = metric.key();
        let leaf = self.leaf(key);
        leaf.rstat().flush_below(leaf);
        M::value(leaf.total(usize::from(key.slot)))
    }

    /// Reads the cached total if it is good enough, and flushes this group and what is below it first if not.
    ///
    /// For pages and controllers that look often: most calls cost what [`read`](Group::read) costs. What
    /// is returned after a flush has all updates that returned before this call; its bound tells of
    /// those that came meanwhile, and may be beyond the tolerance again.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Schema, Tolerance, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().add(requests, 7);
    ///
    /// // Up to 1,000 requests may be missing, for up to a minute: no flush.
    /// let loose = Tolerance::new().error(1000).age(Duration::from_secs(60));
    /// assert_eq!(tree.root().read_within(requests, loose).value, 0);
    ///
    /// assert_eq!(tree.root().read_within(requests, Tolerance::new().error(0)).value, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric is of another tree's schema.
    #[must_use]
    pub fn read_within<M: Scalar>(&self, metric: M, tolerance: Tolerance) -> Reading<M::Value> {
        let reading = self.read(metric);
        if tolerance.accepts(&reading) {
            return reading;
        }
        let leaf = self.leaf(metric.key());
        leaf.rstat().flush_below(leaf);
        self.read(metric)
    }

    /// Brings the cached totals of this group and of everything below it up to date: all updates that returned
    /// before this call are in. The groups above learn what is found here, so that a parent stays its own plus its
    /// children; what else is new to them waits for a flush of theirs.
    ///
    /// Costs what changed here, at most one `membarrier` for each set of metrics, and a glance at each 64 lines that changed anywhere
    /// (not even that for a group that never had a child). Joins a flush of this part, of the tree or of a group
    /// above that began after this call. For all groups use [`Tree::flush`](crate::Tree::flush): one flush is
    /// cheaper than many.
    pub fn flush(&self) -> FlushReport {
        let first = self.inner.leaf.rstat().flush_below(&self.inner.leaf);
        let others = self.inner.others().iter().map(|other| &other.leaf);
        others.fold(first, |report, leaf| report.and(leaf.rstat().flush_below(leaf)))
    }

    /// Copies the cached distribution, own plus descendants', as of the last flush.
    ///
    /// # Panics
    /// When the histogram is of another tree's schema.
    #[must_use]
    pub fn histogram<U: Unit>(&self, histogram: Histogram<U>) -> HistogramSnapshot {
        let (leaf, word) = (self.leaf(histogram.key), usize::from(histogram.key.slot));
        let buckets = histogram.buckets;
        let value = |w| leaf.total(w).cast_unsigned();
        let counts = (0..buckets.len()).map(|b| value(word + 1 + b)).collect();
        HistogramSnapshot::new(buckets, counts, value(word))
    }

    // ---- limits ------------------------------------------------------------------------------

    /// Returns what is held of a resource, own plus descendants': exact, O(1).
    ///
    /// # Panics
    /// When the resource is of another tree's schema.
    #[must_use]
    pub fn usage<U: Unit>(&self, resource: Resource<U>) -> Usage {
        self.inner.limits.usage(self.slot(resource.key))
    }

    /// Sets or lifts the limit of a resource, and returns by how much usage exceeds it now.
    ///
    /// No charge is granted beyond a limit; lowering one below what is held takes nothing away, but
    /// grants nothing more until enough was given back.
    ///
    /// # Panics
    /// When the resource is of another tree's schema.
    pub fn set_limit<U: Unit>(&self, resource: Resource<U>, limit: Option<u64>) -> u64 {
        self.inner.limits.set_limit(self.slot(resource.key), limit)
    }

    /// Charges `n` to this group and every ancestor, or to none.
    ///
    /// # Errors
    /// When a limit on the way to the root would be exceeded; the error names that ancestor and
    /// the children of it that hold most.
    ///
    /// # Panics
    /// When the resource is of another tree's schema.
    pub fn try_charge<U: Unit>(&self, resource: Resource<U>, n: u64) -> Result<Charge, LimitError> {
        Charge::new(self.clone(), resource.key, self.slot(resource.key), n)
    }

    /// The slot of a resource, which must be of this tree's schema.
    #[inline]
    fn slot(&self, key: Key) -> usize {
        if key.set != self.inner.set_id {
            wrong_schema();
        }
        usize::from(key.slot)
    }

    /// The words of a metric's set; the metric must be of this tree's schema.
    #[inline]
    pub(crate) fn leaf(&self, key: Key) -> &Leaf {
        if key.set == self.inner.set_id {
            return &self.inner.leaf;
        }
        let other = self.inner.others().iter().find(|other| other.set_id == key.set);
        other.map_or_else(|| wrong_schema(), |other| &other.leaf)
    }

    pub(crate) fn seats(&self) -> &Seats {
        &self.inner.seats
    }

    /// Its number, which no other group of this process ever has.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// The statistics of its tree.
    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.inner.stats
    }

    /// All cached totals, set after set.
    pub(crate) fn totals(&self) -> Box<[i64]> {
        let others = self.inner.others().iter().map(|other| &other.leaf);
        let leaves = std::iter::once(&self.inner.leaf).chain(others);
        let sets = self.schema().sets();
        sets.iter()
            .zip(leaves)
            .flat_map(|(set, leaf)| (0..set.words).map(|word| leaf.total(word)))
            .collect()
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only that each number is given once matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn wrong_schema() -> ! {
    panic!("the metric belongs to the schema of another tree")
}

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        PercpuArc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Group {}

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref::<GroupInner>(&self.inner).hash(state);
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({})", self.path())
    }
}
