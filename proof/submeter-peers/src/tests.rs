//! Every peer counts correctly, from two threads at once.

use std::collections::HashSet;
use std::thread;

use super::*;

const TENANTS: usize = 20;

#[test]
fn each_peer_counts_each_request_at_each_level() {
    let tenants: Vec<String> = (0..TENANTS).map(|n| format!("tenant-{n:04}")).collect();
    for peer in peers() {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..50).for_each(|_| (peer.count)(&tenants)));
            }
        });
        let levels = if peer.case == Case::Levels { LEVELS } else { 1 };
        let counted = 2 * 50 * TENANTS as u64;
        assert_eq!((peer.totals)(&tenants), vec![counted; levels], "{peer:?}");
    }
}

#[test]
fn new_peers_start_at_zero() {
    for peer in peers() {
        assert!((peer.totals)(&[]).iter().all(|&total| total == 0), "{peer:?}");
    }
}

#[test]
fn no_variant_occurs_twice_in_a_case() {
    let named: Vec<_> = peers().iter().map(|peer| (peer.variant, peer.case)).collect();
    assert_eq!(named.iter().collect::<HashSet<_>>().len(), named.len());
    for case in [Case::Held, Case::Lookup, Case::Levels] {
        assert!(named.iter().any(|(_, other)| *other == case), "{case:?}");
    }
}
