//! The designs against a naive count, on random trees.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use submeter_sys::cpu::affinity;

use super::lists::UpdatedTree;
use super::*;
use crate::bench::rstat::team;

/// A source of random shapes with a fixed seed.
struct RandomShapes(fastrand::Rng);

impl RandomShapes {
    fn below(&mut self, sides: usize) -> usize {
        self.0.usize(..sides)
    }

    /// Returns a tree in which each group's parent is any earlier group.
    fn tree(&mut self, metrics: usize) -> Shape {
        let groups = 1 + self.below(40);
        let mut shape = Shape { parents: vec![NONE], paths: vec!["/".to_owned()], metrics };
        for group in 1..groups {
            let parent = self.below(group);
            let above = shape.paths[parent].trim_end_matches('/');
            shape.paths.push(format!("{above}/{group}"));
            shape.parents.push(parent as u32);
        }
        shape
    }
}

/// A naive count: every update is added to the group and all its ancestors at once.
struct Naive {
    shape: Shape,
    totals: Vec<i64>,
}

impl Naive {
    fn new(shape: &Shape) -> Naive {
        Naive { shape: shape.clone(), totals: vec![0; shape.groups() * shape.metrics] }
    }

    fn update(&mut self, group: u32, metric: usize, n: i64) {
        for at in self.shape.upward(group) {
            self.totals[at as usize * self.shape.metrics + metric] += n;
        }
    }

    /// Compares the totals of `root` and its descendants.
    fn agrees<D: Design>(&self, design: &D, root: u32) {
        for group in 0..self.shape.groups() as u32 {
            if !self.shape.upward(group).any(|at| at == root) {
                continue;
            }
            for metric in 0..self.shape.metrics {
                let expected = self.totals[group as usize * self.shape.metrics + metric];
                let path = &self.shape.paths[group as usize];
                assert_eq!(design.total(group, metric), expected, "{path}, metric {metric}");
            }
        }
    }
}

/// Runs a test on one CPU, as an updater would.
fn pinned(test: impl Fn() + Sync) {
    let cpu = affinity().expect("this process may run somewhere")[0];
    team::together(&[cpu], |_| Ok(()), |_, ()| test()).expect("pinned");
}

fn agrees_with_naive<D: Design>(trees: usize, check: impl Fn(&D) + Sync) {
    pinned(|| {
        let mut random = RandomShapes(fastrand::Rng::with_seed(1));
        for _ in 0..trees {
            one_tree_agrees(&mut random, &check);
        }
    });
}

fn one_tree_agrees<D: Design>(random: &mut RandomShapes, check: &impl Fn(&D)) {
    let shape = random.tree(11);
    let (design, mut naive) = (D::new(&shape).expect("address space"), Naive::new(&shape));
    let slot = design.register().expect("room for a word");
    for _ in 0..20 {
        for _ in 0..random.below(30) {
            let (group, metric) = (random.below(shape.groups()) as u32, random.below(11));
            let n = random.below(9) as i64 - 4;
            design.update(slot, group, metric, n);
            naive.update(group, metric, n);
        }
        let root = random.below(shape.groups()) as u32;
        design.flush(root, &mut Vec::new());
        check(&design);
        naive.agrees(&design, root);
    }
    design.settle();
    naive.agrees(&design, 0);
}

fn lists_agree<T: UpdatedTree, P>()
where
    Lists<T, P>: Design,
{
    agrees_with_naive::<Lists<T, P>>(50, |_| ());
}

#[test]
fn every_design_agrees_with_a_naive_count() {
    agrees_with_naive::<Before>(50, |design| design.is_consistent().expect("links"));
    agrees_with_naive::<Patch1>(50, |design| design.is_consistent().expect("links"));
    agrees_with_naive::<Patch1To2>(50, |design| design.is_consistent().expect("links"));
    agrees_with_naive::<Patch1To3>(50, |design| design.is_consistent().expect("links"));
    agrees_with_naive::<DoublyLinked>(50, |design| design.is_consistent().expect("links"));
    lists_agree::<PushChildren<true>, Near>();
    agrees_with_naive::<WalkUp>(50, |_| ());
    // Fewer runs: each needs a new tree, with address space for all CPUs.
    agrees_with_naive::<Submeter>(10, |_| ());
}

/// Links random groups of random trees, empties a random subtree, and passes the result to `check`:
/// the tree, the linked groups, the root, the order, and the number of visits.
fn take_apart<T: UpdatedTree>(mut check: impl FnMut(&Shape, &[bool], u32, &[u32], u64)) {
    let mut random = RandomShapes(fastrand::Rng::with_seed(2));
    for _ in 0..2000 {
        let shape = random.tree(1);
        let tree = T::new(shape.groups());
        let mut linked = vec![false; shape.groups()];
        for _ in 0..random.below(20) {
            let group = random.below(shape.groups()) as u32;
            tree.link(&shape.parents, group);
            shape.upward(group).for_each(|at| linked[at as usize] = true);
        }
        let root = random.below(shape.groups()) as u32;
        let mut order = Vec::new();
        let visits = tree.detach(&shape.parents, root, &mut |group| order.push(group));
        tree.is_consistent(&shape.parents).expect("links");
        assert!(order.iter().all(|&group| !tree.is_on(group)), "{order:?} are off");
        check(&shape, &linked, root, &order, visits);
    }
}

fn hands_out_each_once_and_in_order<T: UpdatedTree>() {
    take_apart::<T>(|shape, linked, root, order, _| {
        let below =
            |&group: &u32| linked[group as usize] && shape.upward(group).any(|at| at == root);
        let mut expected: Vec<u32> = (0..shape.groups() as u32).filter(below).collect();
        let mut found = order.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "each once");
        let place = |group| order.iter().position(|&at| at == group);
        for &group in order {
            let parent = shape.parents[group as usize];
            if let Some(above) = place(parent) {
                assert_eq!(above < place(group).expect("in it"), T::PARENTS_FIRST, "{order:?}");
            }
        }
    });
}

/// Each node is yielded once and on the right side of its parent.
#[test]
fn each_node_is_yielded_once_in_order() {
    hands_out_each_once_and_in_order::<PopLeaf>();
    hands_out_each_once_and_in_order::<PopList>();
    hands_out_each_once_and_in_order::<PushChildren<false>>();
    hands_out_each_once_and_in_order::<PushChildren<true>>();
    hands_out_each_once_and_in_order::<ListHead>();
}

/// The first version of the patch compared with `parent` where `child` was meant, so that it
/// entered an empty list and left it again. Only the number of visits reveals that.
#[test]
fn the_typo_changes_no_result_and_costs_visits() {
    let mut right = Vec::new();
    take_apart::<PushChildren<false>>(|_, _, _, order, visits| {
        right.push((order.to_vec(), visits))
    });
    let (mut at, mut more) = (0, 0);
    take_apart::<PushChildren<true>>(|_, _, _, order, visits| {
        assert_eq!(order, right[at].0, "the same nodes in the same order");
        assert!(visits >= right[at].1);
        more += usize::from(visits > right[at].1);
        at += 1;
    });
    assert!(more > right.len() / 10, "{more} of {} trees", right.len());
}

/// The second patch visits a leaf of the full tree once, the designs before it many times.
#[test]
fn pushing_children_visits_a_node_once() {
    // Only nodes with children have a list to visit.
    assert_eq!(visits::<PushChildren<false>>(), 111);
    assert_eq!(visits::<PushChildren<true>>(), 1111);
    assert_eq!(visits::<ListHead>(), 1111);
    assert!(visits::<PopList>() > 2000);
}

/// Returns how many node visits a flush of the full tree makes.
fn visits<T: UpdatedTree>() -> u64 {
    let shape = Shape::tens(1);
    let tree = T::new(shape.groups());
    (111..1111).for_each(|leaf| tree.link(&shape.parents, leaf));
    let mut nodes = 0;
    let visits = tree.detach(&shape.parents, 0, &mut |_| nodes += 1);
    assert_eq!(nodes, 1111);
    visits
}

/// Two threads update while a third flushes; whatever the timing, no update is lost.
fn loses_nothing<D: Design>() {
    const UPDATES: i64 = 20_000;
    let cpus = affinity().expect("this process may run somewhere");
    let cpus: Vec<usize> = cpus.into_iter().cycle().take(3).collect();
    let shape = Shape::tens(3);
    let (design, updating) = (D::new(&shape).expect("address space"), AtomicUsize::new(2));
    let work = |index, slot| {
        if index == 2 {
            // Relaxed: the threads are joined.
            while updating.load(Ordering::Relaxed) > 0 {
                design.flush(0, &mut Vec::new());
                thread::yield_now();
            }
            return;
        }
        let mut random = RandomShapes(fastrand::Rng::with_seed(index as u64));
        for _ in 0..UPDATES {
            design.update(slot, random.below(shape.groups()) as u32, random.below(3), 1);
        }
        // Relaxed: as above.
        updating.fetch_sub(1, Ordering::Relaxed);
    };
    team::together(&cpus, |_| design.register(), work).expect("pinned");
    design.settle();
    assert_eq!((0..3).map(|metric| design.total(0, metric)).sum::<i64>(), 2 * UPDATES);
}

#[test]
fn no_design_loses_an_update_to_a_flush() {
    loses_nothing::<Before>();
    loses_nothing::<Patch1>();
    loses_nothing::<Patch1To2>();
    loses_nothing::<Patch1To3>();
    loses_nothing::<DoublyLinked>();
    loses_nothing::<WalkUp>();
    loses_nothing::<Submeter>();
}
