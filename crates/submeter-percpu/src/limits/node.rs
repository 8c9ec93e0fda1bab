//! The groups of a tree of limits, for one resource.

use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use super::common::Common;
use super::leaf::Leaf;
use super::level::{Cause, Level, LimitMode};
use super::path::Path;
use super::pressure::Meter;
use super::tree;
use super::wait::SharedQueue;
use super::{Inside, StockRows, fold};
use crate::clock::Uptime;
use crate::process_lock::ProcessMutex;
use crate::storage::Area;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Maximum amount in one CPU's word: with more, charges of common sizes are hardly cheaper, and
/// limits must be further away.
const CAP: u64 = 1 << 16;

/// A group in a tree of limits: the amount of one resource that it and the groups below it hold.
///
/// A charge is granted by every group up to the root, or by none, whatever others charge at the
/// same time: no limit is ever exceeded, and a charge is refused if and only if it does not fit.
/// Far from all limits it takes from the running CPU's stock, at about the cost of a plain add,
/// however deep the group is; near a limit it costs a locked instruction for each group up to the
/// last whose limit is near, and takes the rest from the stock of the group above that.
/// [`LimitedCounter`](crate::LimitedCounter) is a single such group; see there for how stock comes
/// and goes, and for the guarantees in signal handlers and after forks.
///
/// Creating one costs a word of every CPU's row. If none is left, the group is just as exact, but
/// as slow as near a limit. For a number without a limit use a
/// [`PercpuCounter`](crate::PercpuCounter).
///
/// # Examples
/// ```
/// use submeter_percpu::{Area, LimitNode};
///
/// let root = LimitNode::root(Area::common()?);
/// let [web, mail] = [root.child(), root.child()];
/// root.set_limit(1000);
/// web.try_charge(600).expect("it fits");
/// let refused = mail.try_charge(500).expect_err("600 of 1000 are held");
/// assert_eq!((refused.levels, refused.held, refused.limit), (1, 600, 1000));
/// web.release(600);
/// assert_eq!(root.usage().current, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Dropping
/// Dropping a group returns its stock, once the groups below it are dropped as well. Charges that
/// were not released stay charged to the groups above.
pub struct LimitNode {
    node: Arc<NodeInner>,
}

/// The amounts that a group and the groups below it hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUsage {
    /// The amount charged: exact once charges are over. It includes every charge that has returned,
    /// unless releases on other CPUs race with it.
    pub current: u64,
    /// The maximum amount charged or reserved for charges so far: never less than was charged.
    pub peak: u64,
    /// A lower bound on the amount charged at that time: less than `peak` by the amount that may
    /// have lain in stock.
    pub peak_low: u64,
    /// The limit, `u64::MAX` for none.
    pub limit: u64,
    /// Number of charges that this group's limit refused.
    pub refused: u64,
    /// Number of charges granted beyond this group's limit.
    pub overdrafts: u64,
    /// The way in which the limit treats a charge that exceeds it.
    pub mode: LimitMode,
}

/// A refusal of a charge by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Number of levels from the charged group up to the limit: 0 for its own.
    pub levels: usize,
    /// The amount charged there.
    pub held: u64,
    /// The limit.
    pub limit: u64,
    /// The reason.
    pub cause: Cause,
}

/// Laid out as written: first the fields that charges only read.
#[repr(C)]
pub(super) struct NodeInner {
    pub(super) leaf: Leaf<StockRows>,
    parent: Option<Arc<NodeInner>>,
    pub(super) tree: Arc<Tree>,
    /// Its place in the tree's list, or [`NOWHERE`]. Written and read with the list locked.
    place: AtomicU32,
    /// Number of users of its stock: its own [`LimitNode`], and each child that has users.
    users: AtomicU32,
    pub(super) level: Level,
    /// Whether it ever had a child.
    is_parent: AtomicBool,
    /// Whether its own charges must no longer wait. Written before the queue is locked, and read
    /// with it locked.
    pub(super) ended: AtomicBool,
    /// Whether a charge of it ever waited, so that reading a group that never stalled takes no
    /// lock.
    pub(super) has_stalled: AtomicBool,
    /// Made when a charge first waits. Locked only while the queue is held.
    pub(super) stalls: ProcessMutex<Option<Box<Meter>>>,
}

pub(super) struct Tree {
    area: Area,
    common: Common,
    open: ProcessMutex<Open>,
    waiting: SharedQueue<Arc<NodeInner>>,
    /// The clock that stalls are measured by.
    uptime: Uptime,
    /// Whether a limit was ever soft.
    pub(super) has_soft: AtomicBool,
}

/// The place of a node that is in no list.
const NOWHERE: u32 = u32::MAX;

/// The nodes that may be open, and some that were open.
#[derive(Default)]
struct Open {
    /// Its capacity suffices for all nodes with stock: a charge must not allocate.
    nodes: Vec<Arc<NodeInner>>,
    /// Number of nodes that have stock.
    stocked: usize,
}

impl Open {
    fn insert(&mut self, node: Arc<NodeInner>) {
        // Relaxed: the list is locked. Fewer than 2^32: an area has no more words.
        node.place.store(self.nodes.len() as u32, Ordering::Relaxed);
        self.nodes.push(node);
    }

    fn remove(&mut self, place: usize) {
        // Relaxed: the list is locked.
        self.nodes.swap_remove(place).place.store(NOWHERE, Ordering::Relaxed);
        if let Some(moved) = self.nodes.get(place) {
            // Relaxed: the list is locked.
            moved.place.store(place as u32, Ordering::Relaxed);
        }
    }
}

impl LimitNode {
    /// Creates the root of a tree without limits, with words in `area`.
    #[must_use]
    pub fn root(area: &Area) -> LimitNode {
        let (area, common) = (area.clone(), Common::new());
        let open = ProcessMutex::new(Open::default());
        let waiting = SharedQueue::new();
        let uptime = Uptime::begin();
        let has_soft = AtomicBool::new(false);
        LimitNode::new(Arc::new(Tree { area, common, open, waiting, uptime, has_soft }), None)
    }

    /// Creates a group below this one, without a limit. Do not call it in signal handlers: it
    /// allocates.
    #[must_use]
    pub fn child(&self) -> LimitNode {
        LimitNode::new(Arc::clone(&self.node.tree), Some(Arc::clone(&self.node)))
    }

    fn new(tree: Arc<Tree>, parent: Option<Arc<NodeInner>>) -> LimitNode {
        let stock = StockRows::new(&tree.area).ok().filter(|_| tree.make_room());
        LimitNode::with(stock, tree, parent)
    }

    fn with(
        stock: Option<StockRows>,
        tree: Arc<Tree>,
        parent: Option<Arc<NodeInner>>,
    ) -> LimitNode {
        let leaf = if let Some(stock) = stock {
            let rows = stock.len();
            Leaf::new(stock, CAP, rows)
        } else {
            let stock = StockRows::without_words(&tree.area);
            Leaf::without_words(stock, CAP, tree.area.data_rows() as u64)
        };
        let [place, users] = [NOWHERE, 1].map(AtomicU32::new);
        let [is_parent, ended, has_stalled] = [false; 3].map(AtomicBool::new);
        let (level, stalls) = (Level::new(), ProcessMutex::new(None));
        if let Some(parent) = &parent {
            // Relaxed, both: any reference to the parent's handle, or to a child's handle that
            // counts there, was taken before the parent's end.
            parent.users.fetch_add(1, Ordering::Relaxed);
            parent.is_parent.store(true, Ordering::Relaxed);
        }
        let node = NodeInner {
            leaf,
            parent,
            tree,
            place,
            users,
            level,
            is_parent,
            ended,
            has_stalled,
            stalls,
        };
        LimitNode { node: Arc::new(node) }
    }

    /// Charges `n` to this group and every one above it, or to none.
    ///
    /// # Errors
    /// When a limit would be exceeded. Near a limit, a charge that fits may also be refused in two
    /// places: in a signal handler that interrupted a move of stock by its own thread, and in a
    /// forked child whose parent had a thread in such a move. A charge of another thread counts at
    /// its levels while it is in progress, even if it is refused in the end.
    #[inline]
    pub fn try_charge(&self, n: u64) -> Result<(), Refused> {
        if self.charge_stock(n) { Ok(()) } else { self.charge_levels(n) }
    }

    /// Charges `n` if the running CPU has it in stock, at about the cost of a plain add and without
    /// a function call. If it returns false, nothing is charged, and
    /// [`charge_levels`](LimitNode::charge_levels) decides whether `n` fits. For callers whose own
    /// slow path is out of line.
    #[inline(always)]
    #[must_use]
    pub fn charge_stock(&self, n: u64) -> bool {
        tree::charge_stock(&self.node, n)
    }

    /// Completes a [`try_charge`](LimitNode::try_charge) after
    /// [`charge_stock`](LimitNode::charge_stock) returned false, without a second look at stock.
    ///
    /// # Errors
    /// The same as for [`try_charge`](LimitNode::try_charge).
    #[cold]
    #[inline(never)]
    pub fn charge_levels(&self, n: u64) -> Result<(), Refused> {
        tree::charge_levels(&self.node, n, false).map_err(|at| self.node.refuse(at))
    }

    /// Releases `n`, which was charged to this group, if the running CPU's stock has room for it.
    /// If it returns false, the caller must still release it with
    /// [`release_levels`](LimitNode::release_levels).
    #[inline(always)]
    #[must_use]
    pub fn release_stock(&self, n: u64) -> bool {
        tree::release_stock(&self.node, n)
    }

    /// Releases `n`, which was charged to this group.
    #[inline]
    pub fn release(&self, n: u64) {
        tree::release(&self.node, n);
    }

    /// Releases `n` after [`release_stock`](LimitNode::release_stock) returned false.
    pub fn release_levels(&self, n: u64) {
        tree::release_levels(&self.node, n);
    }

    /// Sets the limit, `u64::MAX` for none, and returns the usage after that. A limit below the
    /// amount held takes back all stock, behind a barrier: from then on nothing is granted until it
    /// fits.
    pub fn set_limit(&self, limit: u64) -> LimitUsage {
        tree::set_limit(&self.node, &self.node.level, limit);
        // This call's limit, not a later one.
        LimitUsage { limit, ..self.usage() }
    }
}

impl LimitNode {
    pub(super) fn node(&self) -> &Arc<NodeInner> {
        &self.node
    }
}

impl NodeInner {
    pub(super) fn waiting(&self) -> &SharedQueue<Arc<NodeInner>> {
        &self.tree.waiting
    }

    /// Returns the nodes from this one to the root.
    pub(super) fn up(&self) -> impl Iterator<Item = &NodeInner> + Clone {
        successors(Some(self), |node| node.parent.as_deref())
    }

    pub(super) fn levels(&self) -> impl Iterator<Item = &Level> + Clone {
        self.up().map(|node| &node.level)
    }

    pub(super) fn holds(&self) -> bool {
        self.level.held() > 0
    }

    /// Returns the time in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.tree.uptime.now_ns()
    }

    pub(super) fn is_below(&self, level: &Level) -> bool {
        self.levels().any(|at| std::ptr::eq(at, level))
    }
}

impl Tree {
    /// Makes room for one more node in the list. Returns false where that is impossible: in a
    /// forked child whose fork left a thread behind with the list, and in a signal handler on top
    /// of a move.
    fn make_room(&self) -> bool {
        // A handler that interrupts this must not visit the list.
        let Some(_inside) = Inside::new() else { return false };
        let Some(mut open) = self.open.lock_unless_abandoned() else { return false };
        open.stocked += 1;
        let room = open.stocked - open.nodes.len();
        open.nodes.reserve(room);
        true
    }

    /// Calls `look` with the open nodes while no stock is moved at those that `which` selects;
    /// stock is still taken and put back. `None` where [`Path::below`] returns false.
    pub(super) fn while_still<T>(
        &self,
        which: impl Fn(&NodeInner) -> bool,
        look: impl FnOnce(&[Arc<NodeInner>]) -> T,
    ) -> Option<T> {
        let _inside = Inside::new()?;
        let open = self.open.lock_unless_abandoned()?;
        let still = || open.nodes.iter().filter(|node| which(node));
        // In any order: a thread that waits for one of these locks holds the list.
        still().for_each(|node| node.leaf.lock.lock().leave_locked());
        let result = look(&open.nodes);
        still().for_each(|node| node.leaf.lock.unlock());
        Some(result)
    }
}

impl Path for Arc<NodeInner> {
    type Stock = StockRows;

    #[inline(always)]
    fn leaf(&self) -> &Leaf<StockRows> {
        &self.leaf
    }

    #[inline(always)]
    fn level(&self) -> &Level {
        &self.level
    }

    fn up(&self) -> impl Iterator<Item = &Self> + Clone {
        successors(Some(self), |node| node.parent.as_ref())
    }

    fn nodes(&self) -> impl Iterator<Item = (&Leaf<StockRows>, &Level)> + Clone {
        NodeInner::up(self).map(|node| (&node.leaf, &node.level))
    }

    fn below(&self, level: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool {
        let Some(_inside) = Inside::new() else { return false };
        let Some(mut open) = self.tree.open.lock_unless_abandoned() else { return false };
        // From the end, so that a removed node is replaced by one that was already checked.
        for place in (0..open.nodes.len()).rev() {
            // Not removed as soon as it closes: a node in use soon opens again.
            if open.nodes[place].leaf.is_closed() {
                open.remove(place);
            }
        }
        // All nodes are below the root: walking up from each would cost a good part of a fold.
        let all = self.levels().last().is_some_and(|root| std::ptr::eq(root, level));
        visit(&mut open.nodes.iter().filter(|node| all || node.is_below(level)));
        true
    }

    fn join(&self, open: &mut dyn FnMut() -> bool) {
        if let Some(mut nodes) = self.tree.open.try_lock()
            && open()
            // Relaxed: the list is locked.
            && self.place.load(Ordering::Relaxed) == NOWHERE
        {
            nodes.insert(Arc::clone(self));
        }
    }

    fn common(&self) -> &Common {
        &self.tree.common
    }

    fn waits_have_ended(&self) -> bool {
        // Relaxed: the queue's lock orders it, see `wake_ended`.
        self.ended.load(Ordering::Relaxed)
    }

    fn serve(&self) {
        self.tree.waiting.change(|queue, woken| {
            self.look_at_stalls();
            queue.serve(self.levels(), woken);
        });
    }

    fn reconsider(&self) {
        self.tree.waiting.change(|queue, woken| {
            self.look_at_stalls();
            queue.reconsider(woken);
        });
    }

    fn note_wait(&self, begins: bool) {
        NodeInner::note_wait(self, begins);
    }

    fn note_holders(&self) {
        self.look_at_stalls();
    }

    fn note_charge(&self) {
        self.tree.waiting.with(|_| self.look_at_stalls());
    }
}

/// Gives back a node's stock. It needs no barrier unless the node was a parent: all threads that
/// charged it are done. A handler that interrupted a move of stock leaves it to the next fold.
fn end(node: &Arc<NodeInner>) {
    let NodeInner { leaf, tree, place, is_parent, .. } = &**node;
    if leaf.cap == 0 {
        return;
    }
    // Relaxed: it was written before its last user ended. A parent needs a barrier, because a
    // charge that waits may outlive its handle: the thread that serves it takes from the stock
    // above.
    if is_parent.load(Ordering::Relaxed) && !leaf.is_closed() {
        fold::close(node);
    }
    let Some(_inside) = Inside::new() else { return };
    let Some(mut open) = tree.open.lock_unless_abandoned() else { return };
    open.stocked -= 1;
    // Relaxed: the list is locked.
    match place.load(Ordering::Relaxed) {
        NOWHERE => return,
        place => open.remove(place as usize),
    }
    let _held = leaf.lock.lock();
    if leaf.is_closed() {
        return;
    }
    let stocked = leaf.end();
    node.levels().for_each(|level| {
        _ = level.give_back(stocked);
        level.end_openings(1);
    });
}

impl Drop for LimitNode {
    fn drop(&mut self) {
        for node in self.node.up() {
            // AcqRel: the other users' charges and releases happen before the end.
            if node.users.fetch_sub(1, Ordering::AcqRel) > 1 {
                break;
            }
            end(node);
            tree::serve_if_awaited(node);
        }
    }
}

impl fmt::Debug for LimitNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitNode").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
