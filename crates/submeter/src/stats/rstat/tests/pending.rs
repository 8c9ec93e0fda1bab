//! Pending errors: which flush they belong to, and how long they count.

use super::*;

const BATCH: i64 = MASK.cast_signed() + 1;

/// Returns a child of the root, and enough groups below it for flushes of either to issue a
/// barrier.
fn forest() -> (Forest, usize, Range<usize>) {
    let mut forest = Forest::new(1);
    let child = forest.add_group(0);
    let many = forest.add_many(child);
    (forest, child, many)
}

/// Returns whether a bound has room for all marks and for no crossing.
fn is_small(bound: u64) -> bool {
    bound <= 2 * (QUIET_MAX as u64 + 4) * (MASK + 1)
}

/// Crossings that a flush has found no longer count, whichever part it flushed.
#[test]
fn what_a_flush_has_counts_no_more() {
    let (mut forest, child, _) = forest();
    let leaf = forest.add_group(child);
    for scope in [0, child, leaf, child, 0, leaf, leaf, 0, 0] {
        forest.leaves[leaf].add(0, 1000 * BATCH, MASK);
        forest.rstat.flush_below(&forest.leaves[scope]);
        // Counts added since, so that the read is not exact.
        forest.leaves[leaf].add(0, BATCH, MASK);
        for group in [scope, leaf] {
            let bound = forest.bound(group, 0);
            assert!((1..=10 * BATCH as u64).contains(&bound), "{group} below {scope}: {bound}");
        }
    }
}

/// Crossings during a flush are told apart from those before it.
#[test]
fn crossings_count_until_a_flush_ends() {
    let (mut forest, child, many) = forest();
    let leaf = forest.add_group(child);
    for part in [false, true, true, false, false] {
        forest.leaves[leaf].add(0, 1000 * BATCH, MASK);
        let scope = match part {
            false => FlushScope::Tree,
            true => FlushScope::Below(forest.leaves[child].id() as usize),
        };
        let mut issued = false;
        let mut state = forest.rstat.flushes.lock();
        forest.mark_many(&mut state, many.clone());
        let middle = |_: &Area| {
            issued = true;
            forest.leaves[leaf].add(0, BATCH, MASK);
            for group in [child, leaf] {
                assert!(forest.bound(group, 0) >= 1001 * BATCH as u64, "{part}");
            }
            Ok(())
        };
        forest.rstat.flush_locked(&mut state, scope, middle).expect("granted");
        drop(state);
        assert!(issued);
        for group in [child, leaf] {
            let bound = forest.bound(group, 0);
            assert!(is_small(bound), "{part}, {group}: {bound}");
        }
        forest.rstat.flush();
    }
}

/// However often a flush fails, and whatever crosses in between, nothing is covered until a flush
/// is complete, and then everything is.
#[test]
fn a_refused_flush_covers_nothing() {
    let (forest, child, many) = forest();
    let refused = |_: &Area| Err(io::ErrorKind::PermissionDenied.into());
    let part = FlushScope::Below(forest.leaves[child].id() as usize);
    for scopes in [vec![FlushScope::Tree; 4], vec![part, FlushScope::Tree, part, part]] {
        let (before, mut crossed) = (forest.total(0, 0), 0);
        for scope in scopes {
            forest.leaves[child].add(0, 1000 * BATCH, MASK);
            crossed += 1000 * BATCH;
            let mut state = forest.rstat.flushes.lock();
            forest.mark_many(&mut state, many.clone());
            forest.rstat.flush_locked(&mut state, scope, refused).expect_err("refused");
            drop(state);
            for group in [0, child] {
                let off = forest.total(group, 0).abs_diff(before + crossed);
                assert!(forest.bound(group, 0) >= off, "{group}: {off}");
            }
        }
        // Two, because a failure may keep more than it has to.
        for _ in 0..2 {
            forest.rstat.flush();
            forest.leaves[child].add(0, BATCH, MASK);
        }
        assert!([0, child].iter().all(|&group| is_small(forest.bound(group, 0))));
        forest.rstat.flush();
    }
}

/// What a block keeps of its last owner's flushes does not matter, whichever part of it was zeroed.
#[test]
fn a_reused_block_counts_its_crossings() {
    for words in 1..=9 {
        let mut forest = Forest::new(words);
        let parent = forest.add_group(0);
        for _ in 0..4 {
            let child = forest.add_group(parent);
            // Flushes later than those of the groups above.
            for group in [parent, child, child] {
                forest.leaves[child].add(words - 1, 5 * BATCH, MASK);
                let before = forest.total(child, words - 1);
                assert!(forest.bound(child, words - 1) >= 5 * BATCH as u64, "{words}: {before}");
                forest.rstat.flush_below(&forest.leaves[group]);
                assert_eq!(forest.total(child, words - 1), before + 5 * BATCH);
            }
            forest.leaves[child].add(words - 1, 5 * BATCH, MASK);
            assert!(forest.bound(child, words - 1) >= 5 * BATCH as u64, "{words}");
            forest.leaves.pop();
            forest.parents.pop();
            // Its place is free again, without a flush of the groups above.
            forest.rstat.reclaim();
        }
    }
}
