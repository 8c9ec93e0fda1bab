//! Flushes of a part, and the groups that are outside it or not yet known to be in it.

use super::super::flush_state::Births;
use super::super::kept_lines::{COLD, COLD_MAX};
use super::*;

/// A flush reads only its part, and its ancestors get the counts.
#[test]
fn a_flush_reads_its_part_only() {
    let mut forest = Forest::new(16).grow(GROUPS);
    let mut left: HashSet<usize> = HashSet::new();
    let mut in_totals = 0;
    for round in 0..60 {
        for _ in 0..5 {
            let group = forest.rng.usize(..GROUPS);
            forest.leaves[group].add(round % 16, 1, MASK);
            left.insert(group);
        }
        let root = forest.rng.usize(..GROUPS);
        let part: HashSet<usize> =
            left.iter().copied().filter(|&g| forest.upward(g).any(|at| at == root)).collect();
        let expected: HashSet<usize> = part.iter().flat_map(|&g| forest.upward(g)).collect();
        forest.rstat.flush_below(&forest.leaves[root]);
        let visits = forest.visits();
        assert_eq!(visits.iter().copied().collect::<HashSet<_>>(), expected);
        assert_eq!(visits.len(), expected.len(), "each once");
        left.retain(|group| !part.contains(group));
        let total: i64 = (0..16).map(|word| forest.total(0, word)).sum();
        assert!(total >= in_totals && total <= 5 * (round as i64 + 1));
        in_totals = total;
        // A parent equals its own count plus its children's between flushes too: nothing is in
        // progress.
        assert!(forest.rstat.flushes.lock().is_at_rest());
        assert_eq!(forest.bound(0, 0) == 0, left.is_empty());
    }
    forest.rstat.flush();
    assert_eq!((0..16).map(|word| forest.total(0, word)).sum::<i64>(), 300);
    assert_eq!(forest.bound(0, 0), 0);
}

#[test]
fn each_of_two_flushes_of_parts_reads_its_own() {
    let mut forest = Forest::new(1);
    let parts = [forest.add_group(0), forest.add_group(0)];
    let children = parts.map(|part| forest.add_group(part));
    for round in 1..=2 {
        children.iter().for_each(|&child| forest.leaves[child].add(0, 1, MASK));
        for (read, part) in (1..).zip(parts) {
            forest.rstat.flush_below(&forest.leaves[part]);
            assert_eq!(forest.total(part, 0), round);
            assert_eq!(forest.total(0, 0), 2 * (round - 1) + read);
        }
    }
}

/// A group that is created and updated while a flush of a part begins is not in that flush, so the
/// flush must not cover the error that the group raised above itself.
#[test]
fn a_group_born_amid_a_flush_keeps_bounds() {
    let mut forest = Forest::new(1);
    let part = forest.add_group(0);
    let by = 100 * (MASK.cast_signed() + 1);
    for has_children in [false, true] {
        let truth = forest.total(part, 0) + by;
        let scope = FlushScope::Below(forest.leaves[part].id() as usize);
        let mut state = forest.rstat.flushes.lock();
        let flush = forest.rstat.flushes.begin();
        forest.rstat.note_begun(scope, &flush);
        state.learn(forest.rstat.flushes.take_births(usize::MAX));
        let born = GroupStats::new(&forest.rstat, Some(&forest.leaves[part])).expect("room");
        born.add(0, by, MASK);
        state.take(scope, &[], 0, Births::new);
        state.propagate(scope, Area::try_barrier).expect("granted");
        forest.rstat.note_flushed(scope, &flush);
        state.finish();
        for group in [0, part] {
            let off = forest.total(group, 0).abs_diff(truth);
            assert!(forest.bound(group, 0) >= off, "{has_children}, {group}: off by {off}");
        }
        drop(state);
        forest.rstat.flush();
        assert_eq!((forest.total(0, 0), forest.bound(part, 0)), (truth, 0));
    }
}

/// A group that comes after a flush of a part has learned of groups is not in that part, although
/// the group whose place it takes was. Otherwise its mark would be taken and its words not read.
#[test]
fn a_reused_place_is_left_alone() {
    let mut forest = Forest::new(1);
    let (part, other) = (forest.add_group(0), forest.add_group(0));
    let first = forest.leaves.len();
    while forest.leaves.len() <= first + COLD_MAX + 1 {
        forest.add_group(part);
    }
    forest.leaves[first..].iter().for_each(|leaf| leaf.add(0, 1, MASK));
    let flush = |forest: &Forest| forest.rstat.flush_below(&forest.leaves[part]);
    flush(&forest);
    let id = forest.leaves.pop().expect("added").id();
    // The group is forgotten; the others become cold, so that the next flush issues a barrier.
    for _ in 0..COLD {
        flush(&forest);
    }
    let mut state = forest.rstat.flushes.lock();
    state.learn(forest.rstat.flushes.take_births(usize::MAX));
    let born = GroupStats::new(&forest.rstat, Some(&forest.leaves[other])).expect("room");
    assert_eq!(born.id(), id, "it has the place of the one that ended");
    born.add(0, 5, MASK);
    let scope = FlushScope::Below(forest.leaves[part].id() as usize);
    state.barrier_ns = None;
    state.take(scope, &[], 0, Births::new);
    let mut barrier = false;
    let issue = |area: &Area| {
        barrier = true;
        area.try_barrier()
    };
    state.propagate(scope, issue).expect("granted");
    state.finish();
    drop(state);
    assert!(barrier);
    forest.rstat.flush();
    let counted = (COLD_MAX + 2) as i64;
    assert_eq!([part, other, 0].map(|at| forest.total(at, 0)), [counted, 5, counted + 5]);
}

/// Meaningless bounds last until a flush, for all ancestors.
#[test]
fn meaningless_bounds_last_until_a_flush() {
    let mut forest = Forest::new(1);
    let (wild, tame) = (forest.add_group(0), forest.add_group(0));
    for n in 1..=2 {
        forest.leaves[wild].add(0, i64::MAX, MASK);
        forest.leaves[tame].add(0, 1, MASK);
        assert_eq!([wild, 0].map(|group| forest.bound(group, 0)), [u64::MAX; 2]);
        assert!((1..=4 * MASK).contains(&forest.bound(tame, 0)), "of no concern beside it");
        forest.rstat.flush_below(&forest.leaves[wild]);
        assert_eq!(forest.total(wild, 0), i64::MAX.wrapping_mul(n));
        assert_eq!(forest.bound(0, 0), u64::MAX, "there may be others above");
        forest.rstat.flush();
        assert_eq!([wild, tame, 0].map(|group| forest.bound(group, 0)), [0; 3]);
    }
}
