//! What is measured in each world, and what a program without submeter would do instead.

use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crossbeam_utils::CachePadded;
use submeter::switch::clock::thread_cpu_ns;
use submeter::{Bytes, Count, Counter, Group, Quota, Schema, Tree};
use submeter_sys::probe;

use crate::bench::limits::Pools;
use crate::bench::percpu_ref::MidPage;
use crate::bench::threads::Work;

/// Leaves of the tree; a power of two, so that an index is masked.
const LEAVES: usize = 1024;
/// Number of leaves per parent, and of parents per group above.
const SIBLINGS: usize = 10;
/// Levels from a leaf to the root.
const LEVELS: usize = 4;
/// Groups that are entered in turn.
const ENTERED: usize = 6;
/// The amount of one charge.
const AMOUNT: u64 = 64;
/// A limit that is never close.
const FAR: u64 = 1 << 40;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    AddAtRandom,
    Pair,
    Charge,
    Switch,
}

impl Operation {
    pub(super) const ALL: [Operation; 5] = [
        Operation::Add,
        Operation::AddAtRandom,
        Operation::Pair,
        Operation::Charge,
        Operation::Switch,
    ];

    /// Returns its name in rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Add => "Group::add",
            Operation::AddAtRandom => "Group::add, random leaf",
            Operation::Pair => "PercpuRef, get and put",
            Operation::Charge => "charge and release",
            Operation::Switch => "switch",
        }
    }

    /// Returns whether it has separate rows for all CPUs at once. A switch shares nothing.
    pub(super) fn is_shared(self) -> bool {
        self != Operation::Switch
    }

    /// Returns the number of operations between two clock reads: long compared with the read, and
    /// short compared with the gap that reveals a preemption.
    pub(super) fn batch(self) -> u32 {
        match self {
            Operation::Switch => 128,
            _ => 512,
        }
    }
}

/// The tree that is updated. It counts requests, bytes with limits, and CPU time.
pub(super) struct Ours {
    /// Without it the groups would be killed, whose handles cost more.
    _tree: Tree,
    requests: Counter<Count>,
    memory: Quota<Bytes>,
    leaves: Arc<[Group]>,
}

impl Ours {
    pub(super) fn new() -> io::Result<Ours> {
        let mut schema = Schema::builder();
        schema.cpu_time("cpu", "CPU time used");
        let requests = schema.counter::<Count>("requests", "Requests answered");
        let memory = schema.quota::<Bytes>("memory", "Memory held");
        let tree = Tree::new(schema.build().map_err(io::Error::other)?);
        let tree = tree.map_err(io::Error::other)?;
        let leaf = |number: usize| {
            let parent = number / SIBLINGS;
            let path = format!("/{}/{parent}/{number}", parent / SIBLINGS);
            tree.get_or_create(&path).map_err(io::Error::other)
        };
        let leaves: Arc<[Group]> = (0..LEAVES).map(leaf).collect::<io::Result<_>>()?;
        let levels = std::iter::successors(Some(leaves[0].clone()), |g| g.parent().cloned());
        levels.for_each(|group| _ = group.set_limit(memory, Some(FAR)));
        Ok(Ours { _tree: tree, requests, memory, leaves })
    }

    /// Returns the loop of an operation.
    ///
    /// # Errors
    /// When there is no memory for a reference count.
    pub(super) fn work(&self, operation: Operation) -> io::Result<Work> {
        let &Ours { requests, memory, .. } = self;
        let leaves = Arc::clone(&self.leaves);
        let (leaf, home) = (leaves[0].clone(), leaves[ENTERED].clone());
        Ok(match operation {
            Operation::Add => Arc::new(move |times| {
                (0..times).for_each(|_| leaf.add(requests, 1));
            }),
            Operation::AddAtRandom => Arc::new(move |times| {
                at_random(times, |number| leaves[number].add(requests, 1));
            }),
            Operation::Pair => {
                let counted = MidPage::new(probe().backend)?;
                Arc::new(move |times| {
                    for _ in 0..times {
                        counted.count.get();
                        held();
                        counted.count.put();
                    }
                })
            }
            Operation::Charge => Arc::new(move |times| {
                for _ in 0..times {
                    let charge = leaf.try_charge(memory, AMOUNT).expect("far below the limit");
                    held();
                    drop(charge);
                }
            }),
            // Entering a group and returning are two switches.
            Operation::Switch => Arc::new(move |times| {
                let _home = home.enter();
                (0..times as usize / 2).for_each(|n| leaves[n % ENTERED].run(held));
            }),
        })
    }
}

/// What programs have without submeter.
pub(super) struct Naive {
    /// An atomic for each group, by level; leaves are adjacent, as in a vector of structures.
    leaves: Vec<Atomic>,
    parents: Vec<AtomicU64>,
    above: Vec<AtomicU64>,
    root: CachePadded<AtomicU64>,
    references: CachePadded<AtomicU64>,
    pools: Pools,
}

/// A leaf's count, and the number of its parent.
struct Atomic {
    count: AtomicU64,
    parent: usize,
}

impl Naive {
    pub(super) fn new() -> Naive {
        let leaf = |number| Atomic { count: AtomicU64::new(0), parent: number / SIBLINGS };
        let [parents, above] = [SIBLINGS, SIBLINGS * SIBLINGS]
            .map(|each| (0..LEAVES.div_ceil(each)).map(|_| AtomicU64::new(0)).collect());
        Naive {
            leaves: (0..LEAVES).map(leaf).collect(),
            parents,
            above,
            root: CachePadded::default(),
            references: CachePadded::new(AtomicU64::new(1)),
            pools: Pools::far(LEVELS),
        }
    }

    /// Adds one on each level.
    #[inline]
    fn count(&self, leaf: usize) {
        let Atomic { count, parent } = &self.leaves[leaf];
        for level in [count, &self.parents[*parent], &self.above[parent / SIBLINGS], &self.root] {
            // Relaxed: a statistic.
            level.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the naive equivalent of `operation`, as a loop.
    pub(super) fn work(self: &Arc<Naive>, operation: Operation) -> Work {
        let naive = Arc::clone(self);
        match operation {
            Operation::Add => Arc::new(move |times| (0..times).for_each(|_| naive.count(0))),
            Operation::AddAtRandom => {
                Arc::new(move |times| at_random(times, |number| naive.count(number)))
            }
            Operation::Pair => Arc::new(move |times| {
                for _ in 0..times {
                    // Relaxed, Release: the orderings of a reference count that checks and frees
                    // nothing.
                    naive.references.fetch_add(1, Ordering::Relaxed);
                    held();
                    naive.references.fetch_sub(1, Ordering::Release);
                }
            }),
            Operation::Charge => Arc::new(move |times| {
                let path = naive.pools.path(0);
                for _ in 0..times {
                    assert!(Pools::try_grow(path, AMOUNT), "far below the limit");
                    held();
                    Pools::shrink(path, AMOUNT);
                }
            }),
            Operation::Switch => Arc::new(move |times| {
                (0..times).for_each(|_| _ = black_box(thread_cpu_ns()));
            }),
        }
    }
}

/// Keeps the compiler from cancelling what precedes it against what follows it.
#[inline]
fn held() {
    // SeqCst: for the compiler only; it emits no instruction.
    compiler_fence(Ordering::SeqCst);
}

/// Calls `update` with the numbers of leaves in scattered order.
#[inline(always)]
fn at_random(times: u32, mut update: impl FnMut(usize)) {
    thread_local!(static STATE: Cell<u32> = const { Cell::new(1) });
    let mut state = STATE.get();
    for _ in 0..times {
        // The high bits of a linear generator, with the constants of Numerical Recipes.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        update(state as usize >> 16 & (LEAVES - 1));
    }
    STATE.set(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: u32 = 1000;

    #[test]
    fn each_operation_does_what_its_name_says() {
        let ours = Ours::new().expect("address space");
        let run = |operation| ours.work(operation).expect("address space")(TIMES);
        let leaf = &ours.leaves[0];
        run(Operation::Add);
        let levels = std::iter::successors(Some(leaf), |group| group.parent());
        assert_eq!(levels.clone().count(), LEVELS);
        assert!(levels.clone().all(|group| group.sum(ours.requests) == u64::from(TIMES)));
        run(Operation::AddAtRandom);
        let root = levels.clone().last().expect("the root");
        assert_eq!(root.sum(ours.requests), 2 * u64::from(TIMES));
        let touched = ours.leaves.iter().filter(|group| group.sum(ours.requests) > 0).count();
        assert!(touched > LEAVES / 2, "{touched}");
        run(Operation::Charge);
        let usage = levels.map(|group| group.usage(ours.memory));
        assert!(usage.into_iter().all(|usage| usage.current == 0 && usage.peak >= AMOUNT));
        run(Operation::Switch);
        assert!(submeter::switch::current().is_none(), "it returns to where it was");
    }

    #[test]
    fn the_naive_peers_do_the_same() {
        let naive = Arc::new(Naive::new());
        Operation::ALL.iter().for_each(|&operation| naive.work(operation)(TIMES));
        // Relaxed: this thread did everything.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let all = |words: &[AtomicU64]| words.iter().map(load).sum();
        let leaves: u64 = naive.leaves.iter().map(|leaf| load(&leaf.count)).sum();
        let levels = [leaves, all(&naive.parents), all(&naive.above), load(&naive.root)];
        assert_eq!(levels, [2 * u64::from(TIMES); LEVELS]);
        assert_eq!(load(&naive.references), 1);
        assert_eq!(naive.pools.used_by_level(), [0; LEVELS]);
    }
}
