//! Limits of groups that were never charged before.

use submeter_percpu::LimitNode;

use crate::tree::group::Group;
use crate::tree::quotas::Limits;

impl Group {
    /// Returns the node of a quota that is going to be charged or limited.
    #[inline]
    pub(super) fn quota(&self, slot: usize) -> &LimitNode {
        &self.limits(slot).node
    }

    #[inline]
    pub(super) fn limits(&self, slot: usize) -> &Limits {
        match self.inner.quotas.get(slot) {
            Some(limits) => limits,
            None => self.first_limits(slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn first_limits(&self, slot: usize) -> &Limits {
        if let Some(parent) = self.parent() {
            parent.limits(slot);
            self.inner.quotas.make_below(&parent.inner.quotas, self.schema());
        }
        self.inner.quotas.get(slot).expect("a root has limits")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::metric::schema::{Quota, Schema};
    use crate::metric::unit::Bytes;
    use crate::metric::usage::Usage;
    use crate::tree::quotas::Quotas;
    use crate::tree::tree::Tree;

    fn tree() -> (Tree, [Quota<Bytes>; 3]) {
        let mut schema = Schema::builder();
        let quotas = ["memory", "disk", "cache"].map(|name| schema.quota::<Bytes>(name, "Held"));
        (Tree::new(schema.build().expect("valid")).expect("room"), quotas)
    }

    /// A group has nodes once it or one below it is charged or limited.
    #[test]
    fn a_group_has_nodes_once_they_are_needed() {
        let (tree, [memory, disk, cache]) = tree();
        let groups = ["/a", "/a/b", "/a/b/c", "/a/d"].map(|path| tree.get_or_create(path).unwrap());
        let made = || groups.each_ref().map(|group| group.inner.quotas.get(0).is_some());
        for group in &groups {
            assert_eq!(group.usage(memory), Usage::default());
        }
        let usages =
            tree.snapshot().groups().iter().map(|group| group.usage(memory)).collect::<Vec<_>>();
        assert_eq!(usages, [Usage::default(); 5]);
        assert_eq!(made(), [false; 4], "a look makes none");
        groups[1].set_limit(cache, Some(10));
        assert_eq!(made(), [true, true, false, false]);
        let held = [disk, cache].map(|quota| groups[2].try_charge(quota, 7).expect("room"));
        assert_eq!(made(), [true, true, true, false]);
        let current = |quota| groups.each_ref().map(|group| group.usage(quota).current);
        assert_eq!([memory, disk, cache].map(current), [[0; 4], [7, 7, 7, 0], [7, 7, 7, 0]]);
        assert_eq!(groups[2].try_charge(cache, 4).unwrap_err().limiting(), &groups[1]);
        drop(held);
        assert_eq!([disk, cache].map(current), [[0; 4]; 2]);
    }

    /// First charges of one group by many threads meet at one node.
    #[test]
    fn first_charges_meet_at_one_node_stress() {
        const THREADS: usize = 4;
        let (tree, [memory, ..]) = tree();
        tree.root().set_limit(memory, Some(THREADS as u64 - 1));
        for round in 0..if cfg!(miri) { 3 } else { 500 } {
            let group = tree.get_or_create(&format!("/{round}/a")).expect("room");
            let start = Barrier::new(THREADS);
            let charge = || {
                start.wait();
                group.try_charge(memory, 1)
            };
            let granted: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(charge)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
            });
            assert_eq!(granted.len(), THREADS - 1);
            assert_eq!(group.usage(memory).current, THREADS as u64 - 1);
            drop(granted);
            assert_eq!((group.usage(memory).current, tree.root().usage(memory).current), (0, 0));
        }
    }

    /// A snapshot during first charges includes them above and below.
    #[test]
    fn a_snapshot_beside_first_charges_agrees_stress() {
        let tries = if cfg!(miri) { 1 } else { 100 };
        let met = (0..tries).any(|_| snapshots_beside_first_charges());
        assert!(cfg!(miri) || met, "no charge came in the middle of a snapshot");
    }

    /// Returns whether a charge came in the middle of a snapshot.
    fn snapshots_beside_first_charges() -> bool {
        let (tree, [memory, ..]) = tree();
        let groups: Vec<Group> = (0..if cfg!(miri) { 20 } else { 6_000 })
            .map(|n| tree.create(&format!("/{n}")).expect("room"))
            .collect();
        let (made, mut met) = (AtomicUsize::new(0), false);
        // Until the last snapshot is taken: a release goes up level by level, and may be halfway.
        let _held = thread::scope(|scope| {
            let charge = |group: &Group| {
                let held = group.try_charge(memory, 1);
                // Relaxed, and below: it only says that time has passed.
                made.fetch_add(1, Ordering::Relaxed);
                held
            };
            let groups = &groups;
            let charges = scope.spawn(move || groups.iter().rev().map(charge).collect::<Vec<_>>());
            while made.load(Ordering::Relaxed) < groups.len() {
                let before = made.load(Ordering::Relaxed);
                let all = || std::iter::once(tree.root()).chain(groups).map(|g| &g.inner.quotas);
                let usages: Vec<u64> =
                    Quotas::usages(0, all()).map(|usage| usage.current).collect();
                met |= made.load(Ordering::Relaxed) != before;
                let (root, below) = (usages[0], usages[1..].iter().sum::<u64>());
                // The root is read first and charged last, and at most one charge is under way
                // whose group had its node before.
                assert!((root..=root + 1).contains(&below), "{root} above and {below} below");
            }
            charges.join().expect("it charges")
        });
        met
    }
}
