//! Groups as a flush sees them: 16 bytes each, in pieces that never move.

use super::reuse::empty;

/// The part of a group that a flush works with.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    /// The parts of the group that have something pending, a bit for each. Nonzero while the node
    /// is in its level's list.
    dirty: u64,
    /// The parent in the lower 28 bits, the slot in the next 28, the depth in the next 7, and
    /// whether it ever had a child. The slot locates what the group has pending, while the node is
    /// in its level's list.
    place: u64,
}

const _: () = assert!(size_of::<Node>() == 16, "four to a cache line");

const ID_BITS: u32 = 28;
const NO_PARENT: u64 = (1 << ID_BITS) - 1;
const SLOT: u64 = NO_PARENT << ID_BITS;
const DEPTH_SHIFT: u32 = 2 * ID_BITS;
const INNER: u64 = 1 << 63;
/// No group; deeper than any.
const ABSENT: Node = Node { dirty: 0, place: u64::MAX };

/// Upper bound on ids, exclusive.
pub(crate) const NODES_MAX: u32 = NO_PARENT as u32;

impl Node {
    #[inline]
    pub(crate) fn parent(self) -> Option<usize> {
        let parent = self.place & NO_PARENT;
        (parent != NO_PARENT).then_some(parent as usize)
    }

    #[inline]
    fn slot(self) -> usize {
        ((self.place & SLOT) >> ID_BITS) as usize
    }

    #[inline]
    pub(crate) fn depth(self) -> usize {
        ((self.place & !INNER) >> DEPTH_SHIFT) as usize
    }

    /// Returns whether it has, or had, a child.
    #[inline]
    pub(crate) fn is_inner(self) -> bool {
        self.place & INNER != 0
    }

    /// Returns whether it has something pending.
    #[inline]
    pub(crate) fn is_scheduled(self) -> bool {
        self.dirty != 0
    }

    fn is_absent(self) -> bool {
        self.place == ABSENT.place
    }
}

/// A group that is announced to the flush.
pub(crate) struct Birth<K> {
    pub(crate) id: u32,
    pub(crate) parent: Option<u32>,
    /// The flush's reference to the group, until it has read it for the last time.
    pub(crate) kept: K,
}

/// A node that has something pending, as the walk visits it.
pub(crate) struct Pending {
    pub(crate) id: usize,
    pub(crate) parent: Option<usize>,
    /// The pending parts.
    pub(crate) dirty: u64,
    /// Its slot: see [`NodeTable::schedule`].
    pub(crate) slot: usize,
}

/// Number of nodes in a piece. There are pieces instead of one vector, which would copy its content
/// and commit it twice when it grows.
const PIECE: usize = 256;

struct Piece<K> {
    nodes: Box<[Node; PIECE]>,
    kept: Box<[Option<K>; PIECE]>,
    /// Number of nodes in the piece: a piece without nodes is freed.
    len: usize,
}

impl<K> Piece<K> {
    fn new() -> Piece<K> {
        Piece { nodes: Box::new([ABSENT; PIECE]), kept: Box::new([const { None }; PIECE]), len: 0 }
    }
}

/// All groups, by id, and which of them have something pending.
pub(crate) struct NodeTable<K> {
    pieces: Vec<Option<Piece<K>>>,
    /// The nodes that have something pending, by depth. Each walk empties it.
    levels: Vec<Vec<u32>>,
    /// Number of those nodes, which is also the next slot.
    scheduled: u64,
}

impl<K> NodeTable<K> {
    pub(crate) fn new() -> NodeTable<K> {
        NodeTable { pieces: Vec::new(), levels: Vec::new(), scheduled: 0 }
    }

    // ---- groups that come and go -------------------------------------------------------------

    /// Adds groups. Parents come before their children.
    pub(crate) fn learn(&mut self, births: impl IntoIterator<Item = Birth<K>>) {
        for birth in births {
            let depth = self.add(birth);
            if self.levels.len() <= depth {
                self.levels.resize_with(depth + 1, Vec::new);
            }
        }
    }

    fn add(&mut self, birth: Birth<K>) -> usize {
        let index = birth.id as usize;
        let depth = match birth.parent.map(|parent| self.get_mut(parent as usize)) {
            None => 0,
            Some(parent) => {
                let parent = parent.expect("a parent is older, and lives as long as its children");
                parent.place |= INNER;
                parent.depth() as u64 + 1
            }
        };
        let parent = birth.parent.map_or(NO_PARENT, u64::from);
        debug_assert!(birth.id < NODES_MAX && depth < 127);
        if self.pieces.len() <= index / PIECE {
            self.pieces.resize_with(index / PIECE + 1, || None);
        }
        let piece = self.pieces[index / PIECE].get_or_insert_with(Piece::new);
        piece.len += 1;
        debug_assert!(piece.nodes[index % PIECE].is_absent(), "an id is one group's at a time");
        piece.nodes[index % PIECE] = Node { dirty: 0, place: depth << DEPTH_SHIFT | parent };
        piece.kept[index % PIECE] = Some(birth.kept);
        depth as usize
    }

    /// Removes groups, children before their parents, and passes the kept reference of each to
    /// `each`.
    pub(crate) fn forget(&mut self, ids: &mut [u32], mut each: impl FnMut(usize, K)) {
        // Children are always dropped first, but two threads may have listed theirs in any order.
        let depth = |id: &u32| self.get(*id as usize).map_or(0, Node::depth);
        ids.sort_by_key(|id| std::cmp::Reverse(depth(id)));
        for &id in &*ids {
            let id = id as usize;
            let Some(Some(piece)) = self.pieces.get_mut(id / PIECE) else { continue };
            piece.nodes[id % PIECE] = ABSENT;
            if let Some(kept) = piece.kept[id % PIECE].take() {
                piece.len -= 1;
                if piece.len == 0 {
                    self.pieces[id / PIECE] = None;
                }
                each(id, kept);
            }
        }
        while self.pieces.pop_if(|piece| piece.is_none()).is_some() {}
    }

    #[inline]
    pub(crate) fn get(&self, id: usize) -> Option<Node> {
        let node = self.pieces.get(id / PIECE)?.as_ref()?.nodes[id % PIECE];
        (!node.is_absent()).then_some(node)
    }

    #[inline]
    fn get_mut(&mut self, id: usize) -> Option<&mut Node> {
        get_mut(&mut self.pieces, id)
    }

    /// Returns what is kept of a group.
    #[cfg(feature = "aggregator")]
    pub(crate) fn kept(&self, id: usize) -> Option<&K> {
        self.pieces.get(id / PIECE)?.as_ref()?.kept[id % PIECE].as_ref()
    }

    // ---- from the groups that changed to the root --------------------------------------------

    /// Lists a group as having something pending in the parts `dirty`, which is not 0. Returns its
    /// slot, and whether that is new. Slots are numbered from 0 in each walk, so that the caller
    /// can keep what is pending densely in a vector, which costs nothing for groups that have
    /// nothing pending.
    #[inline(always)]
    pub(crate) fn schedule(&mut self, id: usize, dirty: u64) -> (usize, bool) {
        debug_assert!(dirty != 0);
        let Some(node) = get_mut(&mut self.pieces, id) else {
            unreachable!("a group is known until its last mark is gone, and so is its parent")
        };
        let new = node.dirty == 0;
        if new {
            node.place = node.place & !SLOT | self.scheduled << ID_BITS;
            self.scheduled += 1;
            self.levels[node.depth()].push(id as u32);
        }
        node.dirty |= dirty;
        (node.slot(), new)
    }

    /// Visits all groups that have something pending, the deepest level first: children before
    /// parents, each once. `visit` may schedule the parent of the group that it visits.
    #[inline(always)]
    pub(crate) fn walk(&mut self, mut visit: impl FnMut(&mut NodeTable<K>, Pending)) {
        for depth in (0..self.levels.len()).rev() {
            let mut level = std::mem::take(&mut self.levels[depth]);
            for &id in &level {
                let id = id as usize;
                let Some(node) = self.get_mut(id) else { continue };
                let dirty = std::mem::take(&mut node.dirty);
                let pending = Pending { id, parent: node.parent(), dirty, slot: node.slot() };
                visit(self, pending);
            }
            empty(&mut level);
            self.levels[depth] = level;
        }
        self.scheduled = 0;
    }

    // ---- ancestors --- -------------------------------------------------------------------

    /// Returns the groups from `id` up to the root.
    pub(crate) fn upward(&self, id: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(id), |id| self.get(*id)?.parent())
    }

    /// Returns whether `id` is `root` or below it. Steps up through the levels in between.
    pub(crate) fn is_below(&self, id: usize, root: usize) -> bool {
        let Some(depth) = self.get(root).map(Node::depth) else { return false };
        let mut at = id;
        loop {
            match self.get(at) {
                Some(node) if node.depth() > depth => match node.parent() {
                    Some(parent) => at = parent,
                    None => return false,
                },
                _ => return at == root,
            }
        }
    }

    /// Returns the capacity in nodes.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.iter().flatten().count() * PIECE
    }

    /// Returns whether nothing is left of the last walk.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        let mut nodes = self.pieces.iter().flatten().flat_map(|piece| *piece.nodes);
        self.scheduled == 0
            && self.levels.iter().all(Vec::is_empty)
            && nodes.all(|node| node.dirty == 0)
    }
}

/// Borrows only the pieces of the table.
#[inline]
fn get_mut<K>(pieces: &mut [Option<Piece<K>>], id: usize) -> Option<&mut Node> {
    let node = &mut pieces.get_mut(id / PIECE)?.as_mut()?.nodes[id % PIECE];
    (!node.is_absent()).then_some(node)
}
