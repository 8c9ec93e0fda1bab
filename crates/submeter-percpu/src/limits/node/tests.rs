//! One tree of nodes, on each backend.

use std::iter::zip;

use submeter_sys::Backend;

use super::*;

const MIB: u64 = 1 << 20;
/// An amount small enough to come from a word.
const SMALL: u64 = 1024;
const ROOM: u64 = 1 << 40;

fn on_each_backend(test: impl Fn(LimitNode)) {
    let machine = submeter_sys::probe().backend;
    // The machine's may be one of the other two: where there are no sequences, or no CPU numbers.
    let others = [Backend::LockedByCpu, Backend::LockedByThread];
    for backend in others.into_iter().filter(|other| *other != machine).chain([machine]) {
        test(LimitNode::root(&Area::with_backend(backend, |_| 0).expect("address space")));
    }
}

/// Does what [`LimitNode::child`] does where the area has no word left.
fn child_without_words(parent: &LimitNode) -> LimitNode {
    LimitNode::with(None, Arc::clone(&parent.node.tree), Some(Arc::clone(&parent.node)))
}

#[test]
fn a_group_without_words_is_exact_beside_stock() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let [rich, poor] = [root.child(), child_without_words(&root)];
        // The first opens it, the third moves a batch.
        for (node, n) in [(&rich, MIB), (&rich, MIB - SMALL), (&rich, SMALL), (&poor, MIB)] {
            assert_eq!(node.try_charge(n), Ok(()));
        }
        let usages = [&rich, &poor, &root].map(|node| node.usage().current);
        assert_eq!(usages, [2 * MIB, MIB, 3 * MIB]);
        assert!(rich.node.leaf.stocked() > 0 && poor.node.leaf.stocked() == 0);

        let refused = poor.try_charge(ROOM - 3 * MIB + 1).expect_err("one too many");
        assert_eq!((refused.held, rich.node.leaf.stocked()), (3 * MIB, 0), "all came back");
        assert_eq!(poor.try_charge(ROOM - 3 * MIB), Ok(()));
        poor.release(ROOM - 2 * MIB);
        drop(poor);
        assert_eq!(root.usage().current, 2 * MIB);
    });
}

#[test]
fn a_limit_takes_back_stock_below_and_not_beside() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let [a, b] = [root.child(), root.child()];
        let below = a.child();
        let charged = [&b, &below].map(open);
        assert!([&b, &below].iter().all(|node| node.node.leaf.stocked() > 0));
        a.set_limit(charged[1]);
        assert_eq!((below.node.leaf.stocked(), a.usage().current), (0, charged[1]));
        assert!(b.node.leaf.stocked() > 0, "it is below another group");
        root.set_limit(charged[0] + charged[1]);
        assert_eq!(b.node.leaf.stocked(), 0, "all is below the root");
    });
}

/// A group without words does not take the stock of others for charges.
#[test]
fn a_group_without_words_takes_no_stock() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let [rich, poor] = [root.child(), child_without_words(&root)];
        let charged = open(&rich);
        assert_eq!(poor.try_charge(MIB), Ok(()));
        assert!(rich.node.leaf.stocked() > 0, "the root holds more than is charged");
        let usage = root.usage();
        assert!(usage.peak_low <= charged + MIB, "{usage:?} of {charged}");
    });
}

/// Charges a node until it has stock, for which time may have to pass; returns the amount.
fn open(node: &LimitNode) -> u64 {
    let mut charged = 0;
    while node.node.leaf.stocked() == 0 {
        // The first opens it, the second moves a batch there.
        for n in [MIB, SMALL] {
            assert_eq!(node.try_charge(n), Ok(()));
            charged += n;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    charged
}

/// Makes the stock of all leaves below the root be given back.
fn cross(node: &LimitNode) {
    node.try_charge(ROOM + 1).expect_err("more than the limit");
}

#[test]
fn a_crossing_gives_stock_back_to_each_parent() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let parents = [root.child(), root.child()];
        let of_parent = [0, 1, 0, 0, 1, 1];
        let leaves = of_parent.map(|of: usize| parents[of].child());
        let charged = leaves.each_ref().map(open);
        let held = |node: &LimitNode| node.node.level.held();
        assert!(zip(&leaves, charged).all(|(leaf, charged)| held(leaf) > charged), "stock");
        let open_below = |node: &LimitNode| node.node.level.openings() as u32;
        assert_eq!((parents.each_ref().map(open_below), open_below(&root)), ([3; 2], 6));
        cross(&leaves[0]);
        assert_eq!((parents.each_ref().map(open_below), open_below(&root)), ([0; 2], 0));
        assert_eq!(leaves.each_ref().map(held), charged);
        let sums =
            [0, 1].map(|of| zip(of_parent, charged).filter(|at| at.0 == of).map(|at| at.1).sum());
        assert_eq!((parents.each_ref().map(held), held(&root)), (sums, sums.iter().sum()));
    });
}

/// A child's charges at its limit use its parent's stock while the child lives.
#[test]
fn a_child_at_its_limit_uses_its_parents_stock() {
    on_each_backend(|root| {
        let parent = root.child();
        let child = parent.child();
        // Small, so that it is near its limit, and again after few charges. Each takes the
        // interpreter long.
        let limit = if cfg!(miri) { 16 * SMALL } else { MIB };
        child.set_limit(limit);
        let node = Arc::clone(&parent.node);
        drop(parent);
        let mut charged = 0;
        // Not all at once: a thread that moves to another CPU finds no stock there.
        while node.leaf.stocked() == 0 {
            assert_eq!(child.try_charge(SMALL), Ok(()));
            charged = (charged + SMALL) % limit;
            if charged == 0 {
                child.release(limit);
            }
        }
        assert!(child.node.leaf.is_closed(), "it is near its limit");
        assert_eq!((child.usage().current, root.usage().current), (charged, charged));
        drop(child);
        assert!(node.leaf.is_closed());
        assert_eq!((node.level.held(), root.usage_at_most()), (charged, charged));
        let LimitUsage { current, .. } = root.usage_and_stock();
        assert_eq!(LimitUsage { current, ..root.usage() }, root.usage_and_stock());
        assert_eq!(current, charged);
        assert!(root.node.tree.open.lock().nodes.is_empty());
        assert_eq!(Arc::strong_count(&node), 1);
    });
}

/// The list contains a node once, until the node stays closed or ends.
#[test]
fn the_list_has_an_open_node_once() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let listed = || root.node.tree.open.lock().nodes.len();
        let [used, idle] = [root.child(), root.child()];
        _ = [&used, &idle].map(open);
        assert_eq!(listed(), 2);
        cross(&root);
        assert_eq!(listed(), 2, "they may open again soon");
        open(&used);
        assert_eq!(listed(), 2);
        cross(&root);
        assert_eq!(listed(), 1, "one did not");
        drop(idle);
        assert_eq!(listed(), 1);
        drop(used);
        assert_eq!(listed(), 0);
    });
}

#[test]
fn the_list_has_room_for_nodes_with_words_only() {
    on_each_backend(|root| {
        let stocked = |n| assert_eq!(root.node.tree.open.lock().stocked, n);
        let children = [root.child(), child_without_words(&root)];
        stocked(2);
        drop(children);
        stocked(1);
    });
}

/// A child that a handler creates on top of a move has no stock.
#[test]
fn a_child_made_on_top_of_a_move_has_no_stock() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let move_under_way = Inside::new();
        let child = root.child();
        drop(move_under_way);
        assert_eq!((child.node.leaf.cap, child.try_charge(1)), (0, Ok(())));
    });
}

/// A child that ends leaves no stock behind: what is charged above is exact again.
#[test]
fn a_child_that_ends_gives_back_its_stock() {
    on_each_backend(|root| {
        root.set_limit(ROOM);
        let child = root.child();
        let charged = open(&child);
        assert!(root.node.level.held() > charged);
        let ended = Arc::clone(&child.node);
        drop(child);
        assert!(ended.leaf.is_closed());
        assert_eq!((root.node.level.held(), root.node.level.exactly()), (charged, Some(charged)));
    });
}

#[test]
fn charges_beyond_a_soft_limit_are_counted() {
    on_each_backend(|root| {
        root.set_limit(10);
        assert_eq!((root.try_charge(10), root.overdrafts()), (Ok(()), 0));
        root.set_mode(LimitMode::Soft);
        for n in 1..4 {
            assert_eq!((root.try_charge(n), root.overdrafts()), (Ok(()), n));
        }
    });
}

/// Without stock, charges are released at the levels.
#[test]
fn what_is_no_stock_is_released_at_the_levels() {
    on_each_backend(|root| {
        let child = child_without_words(&root);
        assert_eq!((child.try_charge(5), child.release_stock(5)), (Ok(()), false));
        child.release_levels(5);
        assert_eq!([&child, &root].map(|node| node.usage().current), [0; 2]);
    });
}
