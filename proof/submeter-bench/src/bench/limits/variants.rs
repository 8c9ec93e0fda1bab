//! The compared limiters: submeter's, and what a program would use instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use submeter::counter::LimitedCounter;
use submeter::{Bytes, Charge, Group, Quota, Schema, Tree};
use submeter_percpu::{Area, Block};

use super::limiter::{AMOUNT, Limiter, Shape};

/// The batch of a counter without a tree: as documented, several times the amount added at once.
const BATCH: u64 = 64 * AMOUNT;

/// Groups of submeter: a charge is a guard.
pub(super) struct Groups {
    leaves: Vec<Group>,
    quota: Quota<Bytes>,
    /// Without it the groups would be killed, whose handles cost more.
    _tree: Tree,
}

impl Groups {
    pub(super) fn quota(&self) -> Quota<Bytes> {
        self.quota
    }
}

impl Limiter for Groups {
    type Leaf = Group;
    type Held<'a> = Charge;

    fn new(shape: Shape) -> io::Result<Groups> {
        let mut schema = Schema::builder();
        let quota = schema.quota::<Bytes>("memory", "Memory held");
        let schema = schema.build().map_err(io::Error::other)?;
        let tree = Tree::new(schema).map_err(io::Error::other)?;
        let mut parent = tree.root().clone();
        parent.set_limit(quota, Some(shape.limit(shape.levels - 1)));
        for above in (1..shape.levels.saturating_sub(1)).rev() {
            parent = parent.create_child("level").map_err(io::Error::other)?;
            parent.set_limit(quota, Some(shape.limit(above)));
        }
        if shape.levels == 1 {
            return Ok(Groups { leaves: vec![parent], quota, _tree: tree });
        }
        let leaf = |number: usize| {
            let leaf = parent.create_child(&number.to_string()).map_err(io::Error::other)?;
            leaf.set_limit(quota, Some(shape.limit(0)));
            Ok(leaf)
        };
        let leaves = (0..shape.leaves).map(leaf).collect::<io::Result<_>>()?;
        Ok(Groups { leaves, quota, _tree: tree })
    }

    fn leaf(&self, number: usize) -> &Group {
        &self.leaves[number.min(self.leaves.len() - 1)]
    }

    #[inline]
    fn charge<'a>(&'a self, leaf: &'a Group, n: u64) -> Option<Charge> {
        leaf.try_charge(self.quota, n).ok()
    }

    fn used(&self) -> Vec<u64> {
        let levels =
            |leaf: &Group| std::iter::successors(Some(leaf.clone()), |g| g.parent().cloned());
        let used = |group: Group| group.usage(self.quota).current;
        self.leaves.iter().flat_map(levels).map(used).collect()
    }
}

/// A memory pool like those of query engines, on each level: an atomic with a limit, charged from
/// the leaf up.
///
/// Written from the documented behaviour of DataFusion's greedy pool: a reservation grows, by a
/// compare-and-exchange loop, if the pool's usage stays within its limit. If one level refuses, the
/// levels below release what they took.
pub(in crate::bench) struct Pools {
    /// The levels of each leaf, its own first, each on its own cache line.
    leaves: Vec<Path>,
}

/// The pools of a leaf and of its ancestors.
pub(in crate::bench) type Path = Vec<Arc<CachePadded<Pool>>>;

/// The usage of one level, and its limit.
pub(in crate::bench) struct Pool {
    used: AtomicU64,
    limit: u64,
}

impl Pools {
    /// Makes a pool for each level of one leaf, whose limits are far away.
    pub(in crate::bench) fn far(levels: usize) -> Pools {
        Pools::of(Shape::far(levels, 1))
    }

    fn of(shape: Shape) -> Pools {
        let pool = |above| {
            let (used, limit) = (AtomicU64::new(0), shape.limit(above));
            Arc::new(CachePadded::new(Pool { used, limit }))
        };
        let common: Path = (1..shape.levels).map(pool).collect();
        let leaf = |_| std::iter::once(pool(0)).chain(common.iter().cloned()).collect();
        Pools { leaves: (0..shape.leaves).map(leaf).collect() }
    }

    /// Returns the levels of a leaf; too high a number means the last one.
    pub(in crate::bench) fn path(&self, number: usize) -> &Path {
        &self.leaves[number.min(self.leaves.len() - 1)]
    }

    /// Returns what is held on each level of each leaf.
    pub(in crate::bench) fn used_by_level(&self) -> Vec<u64> {
        // Relaxed: a statistic, exact once the threads were joined.
        let of = |pool: &Arc<CachePadded<Pool>>| pool.used.load(Ordering::Relaxed);
        self.leaves.iter().flatten().map(of).collect()
    }

    /// Takes `n` on every level of a path, or on none.
    #[inline]
    pub(in crate::bench) fn try_grow(path: &Path, n: u64) -> bool {
        for (level, pool) in path.iter().enumerate() {
            let grown = |used: u64| used.checked_add(n).filter(|used| *used <= pool.limit);
            // Relaxed: a limit concerns only its own count, and the exchange sees the latest one.
            if pool.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
                // Releases only what this call took.
                Pools::shrink(&path[..level], n);
                return false;
            }
        }
        true
    }

    /// Gives back `n` on every level.
    #[inline]
    pub(in crate::bench) fn shrink(pools: &[Arc<CachePadded<Pool>>], n: u64) {
        // Relaxed: as in `try_grow`.
        pools.iter().for_each(|pool| _ = pool.used.fetch_sub(n, Ordering::Relaxed));
    }
}

/// An amount held on a path.
pub(super) struct Grown<'a>(&'a Path, u64);

impl Drop for Grown<'_> {
    #[inline]
    fn drop(&mut self) {
        Pools::shrink(self.0, self.1);
    }
}

impl Limiter for Pools {
    type Leaf = Path;
    type Held<'a> = Grown<'a>;

    fn new(shape: Shape) -> io::Result<Pools> {
        Ok(Pools::of(shape))
    }

    fn leaf(&self, number: usize) -> &Path {
        self.path(number)
    }

    #[inline]
    fn charge<'a>(&'a self, leaf: &'a Path, n: u64) -> Option<Grown<'a>> {
        Pools::try_grow(leaf, n).then(|| Grown(leaf, n))
    }

    fn used(&self) -> Vec<u64> {
        self.used_by_level()
    }
}

/// A tree under one lock: a charge looks at every level and then adds to every level.
pub(super) struct MutexTree {
    levels: CachePadded<Mutex<Vec<Level>>>,
    /// The places of each leaf's levels.
    leaves: Vec<Vec<usize>>,
}

struct Level {
    used: u64,
    limit: u64,
}

/// An amount held on some levels.
pub(super) struct Locked<'a>(&'a MutexTree, &'a [usize], u64);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut levels = self.0.levels.lock();
        self.1.iter().for_each(|&level| levels[level].used -= self.2);
    }
}

impl Limiter for MutexTree {
    type Leaf = Vec<usize>;
    type Held<'a> = Locked<'a>;

    fn new(shape: Shape) -> io::Result<MutexTree> {
        let common = shape.levels - 1;
        let limits = (1..shape.levels).map(|above| shape.limit(above));
        let limits = limits.chain((0..shape.leaves).map(|_| shape.limit(0)));
        let levels = limits.map(|limit| Level { used: 0, limit }).collect();
        let leaf = |number| std::iter::once(common + number).chain(0..common).collect();
        let leaves = (0..shape.leaves).map(leaf).collect();
        Ok(MutexTree { levels: CachePadded::new(Mutex::new(levels)), leaves })
    }

    fn leaf(&self, number: usize) -> &Vec<usize> {
        &self.leaves[number.min(self.leaves.len() - 1)]
    }

    #[inline]
    fn charge<'a>(&'a self, leaf: &'a Vec<usize>, n: u64) -> Option<Locked<'a>> {
        let mut levels = self.levels.lock();
        let fits = |&level: &usize| levels[level].used + n <= levels[level].limit;
        if !leaf.iter().all(fits) {
            return None;
        }
        leaf.iter().for_each(|&level| levels[level].used += n);
        Some(Locked(self, leaf, n))
    }

    fn used(&self) -> Vec<u64> {
        self.levels.lock().iter().map(|level| level.used).collect()
    }
}

/// submeter's counter with a limit, without a tree: all leaves are the same counter.
pub(super) struct Flat(LimitedCounter);

/// An amount held in a counter.
pub(super) struct Added<'a>(&'a Flat, u64);

impl Drop for Added<'_> {
    #[inline]
    fn drop(&mut self) {
        let given_back = self.0.0.try_add(-self.1.cast_signed());
        debug_assert!(given_back.is_ok(), "a give-back is never refused");
    }
}

impl Limiter for Flat {
    type Leaf = ();
    type Held<'a> = Added<'a>;

    fn new(shape: Shape) -> io::Result<Flat> {
        let limit = shape.root_limit.min(shape.leaf_limit);
        LimitedCounter::with_batch(Area::common()?, BATCH, limit.cast_signed()).map(Flat)
    }

    fn leaf(&self, _number: usize) -> &() {
        &()
    }

    #[inline]
    fn charge<'a>(&'a self, (): &'a (), n: u64) -> Option<Added<'a>> {
        self.0.try_add(n.cast_signed()).ok().map(|()| Added(self, n))
    }

    fn used(&self) -> Vec<u64> {
        vec![self.0.sum().cast_unsigned()]
    }
}

/// Not a limiter: an add to the running CPU's own word for the charge and one for its release, the
/// least that counting on each CPU costs.
pub(super) struct TwoAdds(Vec<Block>);

/// What was added to a word.
pub(super) struct Counted<'a>(&'a Block, u64);

impl Drop for Counted<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.add(0, -self.1.cast_signed());
    }
}

impl Limiter for TwoAdds {
    type Leaf = Block;
    type Held<'a> = Counted<'a>;

    fn new(shape: Shape) -> io::Result<TwoAdds> {
        let area = Area::common()?;
        // A block of its own line, as in a group.
        (0..shape.leaves).map(|_| area.block(8)).collect::<io::Result<_>>().map(TwoAdds)
    }

    fn leaf(&self, number: usize) -> &Block {
        &self.0[number.min(self.0.len() - 1)]
    }

    #[inline]
    fn charge<'a>(&'a self, leaf: &'a Block, n: u64) -> Option<Counted<'a>> {
        leaf.add(0, n.cast_signed());
        Some(Counted(leaf, n))
    }

    fn used(&self) -> Vec<u64> {
        self.0.iter().map(|block| block.sum(0).cast_unsigned()).collect()
    }
}

/// Not a limiter: one atomic exchange for a charge and its release together, half of what any
/// design needs that keeps usage in a single atomic.
pub(super) struct Exchange(CachePadded<AtomicU64>);

impl Limiter for Exchange {
    type Leaf = ();
    type Held<'a> = ();

    fn new(_shape: Shape) -> io::Result<Exchange> {
        Ok(Exchange(CachePadded::default()))
    }

    fn leaf(&self, _number: usize) -> &() {
        &()
    }

    #[inline]
    fn charge<'a>(&'a self, (): &'a (), n: u64) -> Option<()> {
        // Relaxed: nothing is published.
        self.0.swap(n, Ordering::Relaxed);
        Some(())
    }

    fn used(&self) -> Vec<u64> {
        Vec::new()
    }
}
