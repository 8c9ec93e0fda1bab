//! Groups as a flush knows them: 16 bytes each, in pieces that never move.

use submeter_percpu::storage::Kept;

use super::leaf::Lineage;

/// What of a group a flush works with.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// Lines of the block that have something pending in the slot: bit `n` for line `n`. Not 0 means
    /// that the node is in its level's list.
    pub(super) dirty: u64,
    /// Where its pending lines are, while it is in that list.
    pub(super) slot: u32,
    /// The parent in the lower 24 bits, the depth in the next 7, and whether it ever had a child.
    place: u32,
}

const _: () = assert!(size_of::<Node>() == 16, "four to a cache line");

const PARENT_BITS: u32 = 24;
const NO_PARENT: u32 = (1 << PARENT_BITS) - 1;
const INNER: u32 = 1 << 31;
/// No group: deeper than any.
const ABSENT: Node = Node { dirty: 0, slot: 0, place: u32::MAX };

impl Node {
    #[inline]
    pub(super) fn parent(self) -> Option<usize> {
        let parent = self.place & NO_PARENT;
        (parent != NO_PARENT).then_some(parent as usize)
    }

    #[inline]
    pub(super) fn depth(self) -> usize {
        ((self.place & !INNER) >> PARENT_BITS) as usize
    }

    /// Whether it has, or had, a child.
    #[inline]
    pub(super) fn is_inner(self) -> bool {
        self.place & INNER != 0
    }

    fn is_absent(self) -> bool {
        self.place == u32::MAX
    }
}

/// A group that the flusher is told of.
pub(crate) struct Birth {
    pub(super) id: u32,
    pub(super) parent: Option<u32>,
    /// Keeps the words until the flusher has read them a last time, and is never looked at before.
    pub(super) kept: Kept<Lineage>,
}

/// Groups in a piece. Pieces instead of one vector: that would copy, and commit twice, what it has when it grows.
const PIECE: usize = 256;

struct Piece {
    nodes: Box<[Node; PIECE]>,
    kept: Box<[Option<Kept<Lineage>>; PIECE]>,
}

impl Piece {
    fn new() -> Piece {
        Piece { nodes: Box::new([ABSENT; PIECE]), kept: Box::new([const { None }; PIECE]) }
    }
}

/// All groups, by id.
#[derive(Default)]
pub(super) struct Nodes {
    pieces: Vec<Piece>,
}

impl Nodes {
    /// Adds a group and returns its depth. Parents come before their children.
    pub(super) fn add(&mut self, birth: Birth) -> usize {
        let index = birth.id as usize;
        let depth = match birth.parent.map(|parent| self.get_mut(parent as usize)) {
            None => 0,
            Some(parent) => {
                let parent = parent.expect("a parent is older, and lives as long as its children");
                parent.place |= INNER;
                parent.depth() as u32 + 1
            }
        };
        // Ids are below 2^24 - 2^17: a row has no more lines. Depths are at most 64.
        let parent = birth.parent.unwrap_or(NO_PARENT);
        debug_assert!(birth.id < NO_PARENT && depth < 127);
        while self.pieces.len() <= index / PIECE {
            self.pieces.push(Piece::new());
        }
        let piece = &mut self.pieces[index / PIECE];
        debug_assert!(piece.nodes[index % PIECE].is_absent(), "a block has one group at a time");
        piece.nodes[index % PIECE] =
            Node { dirty: 0, slot: 0, place: depth << PARENT_BITS | parent };
        piece.kept[index % PIECE] = Some(birth.kept);
        depth as usize
    }

    /// Removes a group.
    pub(super) fn remove(&mut self, id: usize) -> Option<Kept<Lineage>> {
        let piece = self.pieces.get_mut(id / PIECE)?;
        piece.nodes[id % PIECE] = ABSENT;
        piece.kept[id % PIECE].take()
    }

    #[inline]
    pub(super) fn get(&self, id: usize) -> Option<Node> {
        let node = self.pieces.get(id / PIECE)?.nodes[id % PIECE];
        (!node.is_absent()).then_some(node)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Node> {
        let node = &mut self.pieces.get_mut(id / PIECE)?.nodes[id % PIECE];
        (!node.is_absent()).then_some(node)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Node> {
        self.pieces.iter().flat_map(|piece| *piece.nodes).filter(|node| !node.is_absent())
    }

    /// Returns whether `id` is `root` or below it. Steps up by as many levels as lie between.
    pub(super) fn is_below(&self, id: usize, root: usize) -> bool {
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
}
