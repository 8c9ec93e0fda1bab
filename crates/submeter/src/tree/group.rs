//! A group: one tenant, or one level of tenants.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use submeter_percpu::counter::Setter;
use submeter_percpu::percpu_ref::Options;
use submeter_percpu::rcuref::{Guard, pin};
use submeter_percpu::{PercpuArc, PercpuOwner};

use crate::error::Error;
use crate::metric::schema::Schema;
use crate::path;
use crate::stats::rstat::{GroupStats, OtherStats};
use crate::tree::children::{ChildKey, Children};
use crate::tree::extras::Extras;
use crate::tree::once_list::OnceList;
use crate::tree::quotas::Quotas;
use crate::tree::tree_stats::TreeStats;

#[cfg(feature = "thread-context")]
mod context;
pub(crate) mod creation;
mod data;
mod declare;
mod ends;
mod life;
mod reads;
mod spending;
mod updates;

use creation::OnCreateAll;
pub(crate) use ends::KillWait;
pub use ends::WhenKilled;

/// A handle to one group. Look it up once and keep it.
///
/// Cloning and dropping cost an add each on the running CPU's own word, so that every request may
/// hold the group that it works for. An update costs about one such add: no lock, no system call,
/// no allocation. Ancestors are brought up to date by the next flush. A handle keeps the group's
/// storage, not its name: after [`kill`](Group::kill) updates still count, for the parent's total.
///
/// Two handles are equal if they refer to the same group; a killed group and its successor at the
/// same path are different groups. Groups are ordered as a tree is printed: a parent before its
/// descendants, siblings by name, groups of one path by age.
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
/// let worker = web.clone();
/// std::thread::spawn(move || worker.inc(requests)).join().expect("no panic");
/// assert_eq!(web.sum(requests), 1);
/// assert_eq!((web.path(), web.name(), web.depth()), ("/acme/web", "web", 2));
/// assert_eq!(web.parent().map(|acme| acme.child_count()), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Group {
    pub(crate) inner: PercpuArc<GroupInner>,
}

/// In this order, so that the fields that every update and every switch reads come first: the
/// compiler's own order spreads them over three cache lines, and a switch among many groups would
/// miss each.
#[repr(C)]
pub(crate) struct GroupInner {
    depth: u8,
    /// Guarded by `children`.
    dead: AtomicBool,
    /// Sets gauges. Takes two bytes that alignment left free.
    setter: Setter,
    /// The number of the first section, whose words `stats` has; here because every update compares
    /// it.
    section_id: u32,
    /// The per-CPU words.
    stats: GroupStats,
    /// The group's number in this process: unlike its address, never reused.
    id: u64,
    /// Here because every switch reads it.
    #[cfg(feature = "thread-context")]
    pub(crate) context: context::Context,
    pub(crate) quotas: Quotas,
    tree: Arc<TreeShared>,
    /// Before `parent`, like everything else that tells a flusher of the group's end: children end
    /// first.
    pub(crate) extras: Extras,
    parent: Option<Group>,
    /// Live children by name. Its lock guards `dead` too: a group is killed with it held for
    /// writing, so no child is created in a group that is dying.
    children: Children<GroupInner>,
}

/// The state that all groups of a tree share.
pub(crate) struct TreeShared {
    stats: TreeStats,
    on_create: OnCreateAll,
    /// The sets of keys that [`Group::keys`] has returned, one of each type.
    keys: OnceList<Box<dyn Any + Send + Sync>>,
}

impl TreeShared {
    pub(crate) fn new(stats: TreeStats) -> TreeShared {
        TreeShared { stats, on_create: OnCreateAll::default(), keys: OnceList::default() }
    }
}

impl Deref for TreeShared {
    type Target = TreeStats;

    fn deref(&self) -> &TreeStats {
        &self.stats
    }
}

impl GroupInner {
    fn others(&self) -> &[OtherStats] {
        self.extras.others()
    }
}

impl Group {
    /// Returns the owner, whose drop kills the root, and the root.
    pub(crate) fn new_root(
        tree: Arc<TreeShared>,
    ) -> Result<(PercpuOwner<GroupInner>, Group), Error> {
        Self::new(tree, None, "/".to_owned())
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn new(
        tree: Arc<TreeShared>,
        parent: Option<&Group>,
        path: String,
    ) -> Result<(PercpuOwner<GroupInner>, Group), Error> {
        let depth = parent.map_or(0, |p| p.inner.depth + 1);
        if usize::from(depth) > path::DEPTH_MAX {
            return Err(Error::depth(&path));
        }
        let stats = GroupStats::new(tree.first(), parent.map(|p| &p.inner.stats))?;
        // Sections added to the tree since get words here with their first update.
        let schema = tree.first_schema();
        let others = schema.layouts()[1..].iter().zip(tree.others()).enumerate();
        let others = others.map(|(index, (section, rstat))| {
            let above = parent.map(|p| &p.inner.others()[index].stats);
            Ok(OtherStats { section_id: section.id, stats: GroupStats::new(rstat, above)? })
        });
        let others = others.collect::<Result<Box<[_]>, Error>>()?;
        let spends = schema.cpu_budget().is_some();
        let quotas = if parent.is_some() { Quotas::default() } else { Quotas::root(schema)? };
        #[expect(clippy::manual_map, reason = "inside of `map` it is not known who calls")]
        let parent = match parent {
            Some(parent) => Some(parent.clone()),
            None => None,
        };
        #[cfg(feature = "thread-context")]
        let context = context::Context::new(&path);
        // Stored once: the reference count's name is the group's path.
        let options = Options::new().name(path);
        let inner = GroupInner {
            stats,
            section_id: schema.id(),
            quotas,
            tree,
            depth,
            dead: AtomicBool::new(false),
            setter: Setter::new(),
            id: next_id(),
            #[cfg(feature = "thread-context")]
            context,
            extras: Extras::new(others, spends),
            parent,
            children: Children::default(),
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
    #[inline]
    #[must_use]
    pub fn depth(&self) -> usize {
        usize::from(self.inner.depth)
    }

    /// Returns the parent, or `None` for the root.
    #[inline]
    #[must_use]
    pub fn parent(&self) -> Option<&Group> {
        self.inner.parent.as_ref()
    }

    pub(crate) fn on_create_all(&self) -> &OnCreateAll {
        &self.inner.tree.on_create
    }

    /// Returns the schema of its tree: see [`Tree::schema`](crate::Tree::schema).
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.inner.tree.schema()
    }

    /// Returns the number of its tree's schema, for a comparison that follows no pointer.
    #[inline]
    pub(crate) fn schema_id(&self) -> u32 {
        self.inner.section_id
    }

    /// Returns the live child called `name`: hashes the name, probes a table and takes a reference,
    /// without a lock or a retry. Allocates once in each thread, and occasionally frees entries
    /// that other threads removed.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn child(&self, name: &str) -> Option<Group> {
        self.child_under(name, &pin())
    }

    /// The same as [`child`](Group::child), for callers that look up several levels under one
    /// guard.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn child_under(&self, name: &str, guard: &Guard) -> Option<Group> {
        let sought = ChildKey::new(self.path(), name);
        let inner = self.inner.children.get(sought.hash, |path| sought.is(path), guard)?;
        // A kill in progress may have marked the group without having removed it yet: a thread that
        // saw it killed must not find it again. Relaxed: such a thread has read this very word, and
        // cannot read an older value.
        (!inner.dead.load(Ordering::Relaxed)).then_some(Group { inner })
    }

    /// Returns the live children, sorted by name. Takes a reference to each; if only their number
    /// matters, use [`child_count`](Group::child_count).
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn children(&self) -> Vec<Group> {
        let mut live = self.children_unsorted();
        live.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        live
    }

    /// Returns the live children in no particular order. With thousands of children,
    /// [`children`](Group::children) spends most of its time on sorting.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn children_unsorted(&self) -> Vec<Group> {
        // Most groups never had a child, and the locks of 100,000 groups would slow a walk down.
        if self.inner.children.is_unused() {
            return Vec::new();
        }
        let live = self.inner.children.read().clone_live();
        live.into_iter().map(|inner| Group { inner }).collect()
    }

    /// Returns how many live children there are.
    #[must_use]
    pub fn child_count(&self) -> usize {
        self.inner.children.len(&pin())
    }

    /// Creates a child.
    ///
    /// # Errors
    /// When the name is invalid, there is a child of that name, the group was killed, or the tree
    /// is full.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn create_child(&self, name: &str) -> Result<Group, Error> {
        self.make_child(name, false)
    }

    /// Finds a child, or creates it.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.root().get_or_create_child("web")?;
    /// assert_eq!(tree.root().get_or_create_child("web")?, web);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the name is invalid, the group was killed, or the tree is full.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn get_or_create_child(&self, name: &str) -> Result<Group, Error> {
        if let Some(child) = self.child(name) {
            return Ok(child);
        }
        self.make_child(name, true)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn make_child(&self, name: &str, or_get: bool) -> Result<Group, Error> {
        path::check_name(name)?;
        match self.try_make_child(name, or_get) {
            // Reclaim after unlocking `children`: a snapshot takes the two locks in the other
            // order.
            Err(error) if error.is_no_room() => {
                self.inner.tree.reclaim();
                self.try_make_child(name, or_get)
            }
            result => result,
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn try_make_child(&self, name: &str, or_get: bool) -> Result<Group, Error> {
        let mut children = self.inner.children.write();
        // Relaxed: written only with `children` held for writing, as it is here.
        if self.inner.dead.load(Ordering::Relaxed) {
            return Err(Error::killed(self.path()));
        }
        let path = path::join(self.path(), name);
        let sought = ChildKey::new(self.path(), name);
        if let Some(inner) = children.get(sought.hash, |path| sought.is(path)) {
            return if or_get { Ok(Group { inner }) } else { Err(Error::already_exists(path)) };
        }
        let inner = &self.inner;
        let (owner, child) = Group::new(Arc::clone(&inner.tree), Some(self), path)?;
        let (mut owner, mut replaced) = (Some(owner), None);
        inner.tree.on_create.create(&child, &mut || {
            if let Some(owner) = owner.take() {
                replaced = Some(children.insert(sought.hash, owner, |path| sought.is(path)));
            }
        });
        drop(children);
        drop(replaced);
        Ok(child)
    }

    // ---- for the rest of the crate -----------------------------------------------------------

    #[cfg(feature = "aggregator")]
    pub(crate) fn extras(&self) -> &Extras {
        &self.inner.extras
    }

    /// Returns a number that no other group of the process has or had. It tells a killed group from
    /// its successor at the same path, and is the [`GroupValues::id`](crate::GroupValues::id) of a
    /// snapshot.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Returns the statistics of its tree.
    pub(crate) fn tree_stats(&self) -> &Arc<TreeShared> {
        &self.inner.tree
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: all that matters is that each number is given once.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cold]
#[inline(never)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn wrong_schema() -> ! {
    panic!("the metric belongs to the schema of another tree")
}

/// For libraries that follow groups, such as `submeter-alloc`. Hidden, because these need more care
/// than a program should have to take: it has [data](Group::data_or_init) and knows its trees.
#[doc(hidden)]
impl Group {
    /// Returns whether both belong to the same tree; a schema may have several trees.
    #[inline(always)]
    #[must_use]
    pub fn is_beside(&self, other: &Group) -> bool {
        Arc::ptr_eq(&self.inner.tree, &other.inner.tree)
    }

    /// Sets a library's value, beside the program's own: only one for all libraries, and only once.
    /// It is dropped with the last handle, not at the kill: it must hold no handle to this group or
    /// to one below it, nor a charge of such a group. They would keep each other alive.
    ///
    /// # Errors
    /// Returns the given value if one was set before, of whatever type.
    pub fn set_companion<T: Any + Send + Sync>(&self, value: T) -> Result<(), T> {
        self.inner.extras.set_companion(value)
    }

    /// Returns the value that [`set_companion`](Group::set_companion) set, if it is a `T`.
    #[must_use]
    pub fn companion<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.inner.extras.companion()
    }
}

// By hand, so that the holders of a killed group are reported where the caller took the handle.
impl Clone for Group {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn clone(&self) -> Group {
        Group { inner: self.inner.clone() }
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        PercpuArc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Group {}

/// The order in which a tree is printed: see [`Group`].
impl Ord for Group {
    fn cmp(&self, other: &Group) -> std::cmp::Ordering {
        path::compare(self.path(), other.path()).then_with(|| self.id().cmp(&other.id()))
    }
}

impl PartialOrd for Group {
    fn partial_cmp(&self, other: &Group) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref::<GroupInner>(&self.inner).hash(state);
    }
}

/// Writes the path.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.path())
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({})", self.path())
    }
}
