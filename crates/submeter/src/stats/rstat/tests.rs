//! Flushes, from inside: what is visited, in which order, and what a failure leaves behind.
//!
//! Linux states its rules for lists of updated groups. Here there are marks, and lists only while a
//! flush runs: "on the list" becomes "visited by the next flush".

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Barrier, mpsc};

use fastrand::Rng;

use super::kept_lines::QUIET_MAX;
use super::*;
use crate::{Count, Unit};

mod parts;
mod pending;

const MASK: u64 = Count::KIND.batch_mask();
/// Number of groups in the random trees.
const GROUPS: usize = if cfg!(miri) { 40 } else { 700 };

/// A tree without names: leaves by number, each with the number of its parent.
struct Forest {
    rstat: Arc<Rstat>,
    leaves: Vec<GroupStats>,
    parents: Vec<Option<usize>>,
    rng: Rng,
}

impl Forest {
    fn new(words: usize) -> Forest {
        let rstat = Arc::new(
            Rstat::new(words, &[], 100_000, &Simulated::default()).expect("address space"),
        );
        let root = GroupStats::new(&rstat, None).expect("room");
        Forest { rstat, leaves: vec![root], parents: vec![None], rng: Rng::with_seed(1) }
    }

    /// Grows to `groups` groups, each below some older one.
    fn grow(mut self, groups: usize) -> Forest {
        while self.leaves.len() < groups {
            let parent = self.rng.usize(..self.leaves.len());
            self.add_group(parent);
        }
        self
    }

    fn add_group(&mut self, parent: usize) -> usize {
        let leaf = GroupStats::new(&self.rstat, Some(&self.leaves[parent])).expect("room");
        self.leaves.push(leaf);
        self.parents.push(Some(parent));
        self.leaves.len() - 1
    }

    /// Adds enough groups that a flush in which all are marked issues a barrier.
    fn add_many(&mut self, parent: usize) -> Range<usize> {
        let first = self.leaves.len();
        for _ in 0..=QUIET_MAX {
            self.add_group(parent);
        }
        first..self.leaves.len()
    }

    /// Marks groups, so that the next flush issues a barrier.
    fn mark_many(&self, state: &mut FlushState, groups: Range<usize>) {
        state.barrier_ns = None;
        groups.for_each(|group| self.leaves[group].add(0, 0, MASK));
    }

    fn upward(&self, group: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(group), |&at| self.parents[at])
    }

    fn total(&self, group: usize, word: usize) -> i64 {
        self.leaves[group].total(word)
    }

    fn bound(&self, group: usize, word: usize) -> u64 {
        self.leaves[group].read(word, MASK).max_error
    }

    /// Takes the visits of the last flush, as numbers of groups.
    fn visits(&self) -> Vec<usize> {
        let of: HashMap<u32, usize> =
            self.leaves.iter().enumerate().map(|(n, leaf)| (leaf.id(), n)).collect();
        self.rstat.flushes.lock().take_visits().iter().map(|id| of[id]).collect()
    }
}

/// Children end before their parents, as in a tree of handles.
impl Drop for Forest {
    fn drop(&mut self) {
        while self.leaves.pop().is_some() {}
    }
}

/// Linux: a node on the list has all its ancestors there. Here: a flush visits the updated groups
/// and all their ancestors, and nothing else, so that unchanged groups cost nothing.
#[test]
fn rstat_1_a_flush_visits_only_what_changed() {
    let mut forest = Forest::new(1).grow(GROUPS);
    forest.rstat.flush();
    forest.visits();
    for _ in 0..10 {
        let updated: Vec<usize> = (0..20).map(|_| forest.rng.usize(..GROUPS)).collect();
        updated.iter().for_each(|&group| forest.leaves[group].add(0, 1, MASK));
        let report = forest.rstat.flush();
        let expected: HashSet<usize> = updated.iter().flat_map(|&g| forest.upward(g)).collect();
        let visits = forest.visits();
        assert_eq!(visits.iter().copied().collect::<HashSet<_>>(), expected);
        assert_eq!(report.groups, expected.len());
    }
}

/// Linux: child before parent, no duplicate, every popped node off the list. The same holds here,
/// with blocks of more than one line, some of which lie in two words of marks.
#[test]
fn rstat_2_children_come_before_parents() {
    for words in [1, 16, 24, 500] {
        let mut forest = Forest::new(words).grow(if words == 500 { 30 } else { GROUPS });
        let groups = forest.leaves.len();
        for _ in 0..5 {
            for _ in 0..groups {
                let (group, word) = (forest.rng.usize(..groups), forest.rng.usize(..words));
                forest.leaves[group].add(word, 1, MASK);
            }
            forest.rstat.flush();
            assert!(forest.rstat.flushes.lock().is_at_rest());
            let visits = forest.visits();
            let mut seen = HashSet::new();
            for &group in visits.iter().rev() {
                assert!(seen.insert(group), "visited twice");
                let parent = forest.parents[group];
                assert!(parent.is_none_or(|parent| seen.contains(&parent)), "parent first");
            }
        }
    }
}

/// Linux: after one flush of a quiet tree, a parent equals its own count plus its children's, in
/// any tree.
#[test]
fn rstat_3_a_parent_is_own_plus_children() {
    let mut forest = Forest::new(11).grow(GROUPS);
    let mut own = vec![[0i64; 11]; GROUPS];
    for round in 0..3 {
        for n in 0..2 * GROUPS {
            let (group, word) = (forest.rng.usize(..GROUPS), forest.rng.usize(..11));
            let by = n as i64 * 37 - 9000;
            forest.leaves[group].add(word, by, MASK);
            own[group][word] += by;
        }
        forest.rstat.flush();
        let mut expected = own.clone();
        for group in (1..GROUPS).rev() {
            let parent = forest.parents[group].expect("not the root");
            let below = expected[group];
            expected[parent].iter_mut().zip(below).for_each(|(total, below)| *total += below);
        }
        for (group, words) in expected.iter().enumerate() {
            for (word, &total) in words.iter().enumerate() {
                assert_eq!(forest.total(group, word), total, "round {round}, group {group}");
                assert_eq!(forest.bound(group, word), 0);
            }
        }
    }
}

/// Returns a root, a group that counted 100, and a dead group below it that counted 7.
fn with_a_dead_group() -> (Forest, usize) {
    let mut forest = Forest::new(9);
    let child = forest.add_group(0);
    forest.leaves[child].add(8, 100, MASK);
    let dead = GroupStats::new(&forest.rstat, Some(&forest.leaves[child])).expect("room");
    dead.add(0, 7, MASK);
    drop(dead);
    (forest, child)
}

#[test]
fn a_refused_barrier_loses_nothing() {
    let (forest, child) = with_a_dead_group();
    for scope in [FlushScope::Tree, FlushScope::Below(forest.leaves[child].id() as usize)] {
        let refused = |_: &Area| Err(io::ErrorKind::PermissionDenied.into());
        let mut state = forest.rstat.flushes.lock();
        forest.rstat.flush_locked(&mut state, scope, refused).expect_err("refused");
        assert!(state.is_at_rest());
        drop(state);
        assert_eq!((forest.total(0, 8), forest.rstat.len()), (0, 3));
        assert!(forest.bound(0, 8) >= 100 && forest.bound(child, 8) >= 100);
    }
    forest.rstat.flush();
    assert_eq!((forest.total(0, 8), forest.total(child, 0), forest.rstat.len()), (100, 7, 2));
    assert_eq!((forest.bound(0, 8), forest.bound(child, 0)), (0, 0));
}

/// The flush reads marked lines and leaves their marks.
#[test]
fn a_slow_barrier_leaves_marks() {
    let (forest, child) = with_a_dead_group();
    for scope in [FlushScope::Tree, FlushScope::Below(forest.leaves[child].id() as usize)] {
        let too_long = |_: &Area| Err(io::ErrorKind::TimedOut.into());
        let mut state = forest.rstat.flushes.lock();
        let marked = forest.rstat.area.dirty_lines(u64::MAX);
        forest.rstat.flush_locked(&mut state, scope, too_long).expect("without a barrier");
        assert!(state.is_at_rest());
        drop(state);
        assert_eq!((forest.total(child, 8), forest.total(child, 0)), (100, 7));
        assert_eq!(forest.rstat.len(), 3, "the dead group's words are not for another yet");
        assert_eq!(forest.rstat.area.dirty_lines(u64::MAX), marked);
    }
    // It is found without a mark of its own.
    forest.leaves[child].add(8, 1, MASK);
    forest.rstat.flush();
    assert_eq!((forest.total(0, 8), forest.total(child, 0), forest.rstat.len()), (101, 7, 2));
    assert_eq!((forest.bound(0, 8), forest.bound(child, 0)), (0, 0));
}

/// A read at any step of a flush is within its bound.
#[test]
fn a_read_amid_a_flush_keeps_its_bound() {
    let mut forest = Forest::new(1);
    let (child, many) = (forest.add_group(0), forest.add_many(0));
    let mut truth = 0;
    for by in [3, 1000, -5, 64, -1_000_000, 1] {
        forest.leaves[child].add(0, by, MASK);
        truth += by;
        let mut in_the_middle = false;
        let mut state = forest.rstat.flushes.lock();
        forest.mark_many(&mut state, many.clone());
        let read = |_: &Area| {
            // Marks have been taken and drift noted, but the totals are still the old ones.
            for group in [0, child] {
                let off = forest.total(group, 0).abs_diff(truth);
                assert!(off > 0 && forest.bound(group, 0) >= off);
            }
            in_the_middle = true;
            Ok(())
        };
        forest.rstat.flush_locked(&mut state, FlushScope::Tree, read).expect("granted");
        assert!(in_the_middle);
        assert_eq!((forest.total(0, 0), forest.bound(0, 0)), (truth, 0));
    }
}

/// An updater that crossed a boundary and lost the CPU before it could post that hides later
/// updates of the same word: they cross nothing, and no drift reports them.
#[test]
fn a_read_amid_overflows_keeps_its_bound() {
    let mut forest = Forest::new(1);
    let child = forest.add_group(0);
    let batch = MASK.cast_signed() + 1;
    let leaf = &forest.leaves[child];
    let checks_at_the_bound = Cell::new(0);
    let check = |returned: i64| {
        for group in [0, child] {
            let (total, bound) = (forest.total(group, 0), forest.bound(group, 0));
            let off = total.abs_diff(returned);
            assert!(off <= bound, "{returned} not in {total} ± {bound}");
            checks_at_the_bound.update(|n| n + usize::from(off == bound && off != 0));
        }
    };
    // Adds that do not cross, around adds that cross and are stuck: the most that can be hidden, up
    // and down.
    for sign in [1, -1] {
        // From one end of a batch to the other; the boundary is half a batch away from 0.
        let below = (forest.total(0, 0) + batch / 2).rem_euclid(batch);
        leaf.add(0, if sign > 0 { -below } else { batch - 1 - below }, MASK);
        forest.rstat.flush();
        let mut returned = forest.total(0, 0);
        let fill = |returned: &mut i64| {
            leaf.add(0, sign * (batch - 1), MASK);
            *returned += sign * (batch - 1);
            check(*returned);
        };
        fill(&mut returned);
        leaf.block().add_dirty(0, sign, MASK, |first| {
            fill(&mut returned);
            leaf.block().add_dirty(0, sign, MASK, |second| {
                fill(&mut returned);
                forest.rstat.flush();
                fill(&mut returned);
                leaf.crossed(0, &second);
            });
            returned += sign;
            check(returned);
            leaf.crossed(0, &first);
        });
        returned += sign;
        check(returned);
        forest.rstat.flush();
        assert_eq!((forest.total(child, 0), forest.bound(child, 0)), (returned, 0));
    }
    assert!(checks_at_the_bound.get() > 0, "no tighter bound holds");
}

#[test]
fn the_bound_ignores_what_did_not_change() {
    let mut forest = Forest::new(1).grow(GROUPS);
    forest.rstat.flush();
    assert_eq!(forest.bound(0, 0), 0);
    for dirty in 1..10 {
        let group = forest.rng.usize(..GROUPS);
        forest.leaves[group].add(0, 1, MASK);
        // The thread may move between adds and mark the same group in another row. If it loses the
        // CPU between finding a mark clear and setting it, it marks one line too many, at most once
        // per add.
        assert!(forest.bound(0, 0) <= 2 * dirty * (MASK + 1), "{}", forest.bound(0, 0));
        assert!(forest.bound(0, 0) >= 1);
    }
}

#[test]
fn drift_that_wraps_around_gives_no_small_bound() {
    let forest = Forest::new(1);
    let root = &forest.leaves[0];
    [i64::MAX, i64::MIN, i64::MAX, 5].into_iter().for_each(|by| root.add(0, by, MASK));
    assert_eq!(forest.bound(0, 0), u64::MAX);
    forest.rstat.flush();
    assert_eq!((forest.total(0, 0), forest.bound(0, 0)), (i64::MAX.wrapping_add(4), 0));
    // Many adds that are each just too small to be posted by themselves.
    let by = (1 << 47) - 64;
    let adds = (1u64 << 17) + 10;
    for n in 0..adds / 2 {
        root.add(0, by, MASK);
        root.add(0, if n == 0 { 0 } else { -by }, MASK);
    }
    assert!(forest.bound(0, 0) >= by as u64);
    forest.rstat.flush();
    assert_eq!(forest.bound(0, 0), 0);
    root.add(0, 1, MASK);
    assert!(forest.bound(0, 0) <= 2 * (MASK + 1), "a flush ends it");
}

/// Readers that ask while a flush runs cause only one more flush between them, whatever part they
/// ask for.
#[test]
fn readers_share_the_next_flush() {
    const READERS: usize = 8;
    let mut forest = Forest::new(1);
    let (a, b) = (forest.add_group(0), forest.add_group(0));
    let (below_a, many) = (forest.add_group(a), forest.add_many(0));
    forest.leaves[b].add(0, 1, MASK);
    let below = |group: usize| FlushScope::Below(forest.leaves[group].id() as usize);
    // The callers, and the number of flushes that serve them.
    let cases = [
        (vec![FlushScope::Tree, below(a), below(b), below(below_a)], 4),
        (vec![FlushScope::Tree], 1),
        (vec![below(a)], 1),
        (vec![below(a), below(below_a)], 2),
    ];
    for (scopes, at_most) in cases {
        let asked = Barrier::new(READERS + 1);
        let (running, runs) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = forest.rstat.flushes.lock();
                forest.mark_many(&mut state, many.clone());
                let barrier = |_: &Area| {
                    running.send(()).expect("heard");
                    asked.wait();
                    Ok(())
                };
                forest.rstat.flush_locked(&mut state, FlushScope::Tree, barrier).expect("granted");
            });
            runs.recv().expect("it runs");
            let begun = forest.rstat.flushes.ask();
            let readers: Vec<_> = (0..READERS)
                .map(|n| {
                    let (asked, rstat, part) = (&asked, &forest.rstat, scopes[n % scopes.len()]);
                    scope.spawn(move || {
                        let number = rstat.flushes.ask();
                        asked.wait();
                        rstat.answer(part, number).joined
                    })
                })
                .collect();
            let joined = readers.into_iter().map(|reader| reader.join());
            let joined = joined.filter(|joined| *joined.as_ref().expect("no panic")).count();
            let flushes = (forest.rstat.flushes.ask() - begun) as usize;
            assert!((1..=at_most).contains(&flushes), "{flushes} flushes");
            assert_eq!(joined, READERS - flushes);
        });
    }
}

/// Dead groups are forgotten by flushes of parts as well, and without any flush once many wait.
#[test]
fn partial_flushes_and_ends_forget_the_dead() {
    let mut forest = Forest::new(1);
    let (a, b) = (forest.add_group(0), forest.add_group(0));
    let dead = GroupStats::new(&forest.rstat, Some(&forest.leaves[a])).expect("room");
    dead.add(0, 1, MASK);
    drop(dead);
    forest.rstat.flush_below(&forest.leaves[b]);
    assert_eq!(forest.rstat.len(), 4, "not in this part");
    forest.rstat.flush_below(&forest.leaves[a]);
    assert_eq!((forest.rstat.len(), forest.total(a, 0), forest.total(0, 0)), (3, 1, 1));
    let dead: Vec<GroupStats> = (0..BATCH)
        .map(|_| GroupStats::new(&forest.rstat, Some(&forest.leaves[a])).expect("room"))
        .collect();
    dead.iter().for_each(|dead| dead.add(0, 1, MASK));
    for (n, dead) in dead.into_iter().enumerate() {
        assert_eq!(forest.rstat.len(), 3 + BATCH, "{n}: not before there is a batch of them");
        drop(dead);
    }
    assert_eq!((forest.rstat.len(), forest.total(0, 0)), (3, 1 + BATCH as i64));
    forest.rstat.flush_below(&forest.leaves[b]);
    // Their blocks are reused, from zero.
    for _ in 0..BATCH {
        let next = forest.add_group(b);
        assert_eq!(forest.total(next, 0), 0);
        forest.leaves[next].add(0, 1, MASK);
        forest.rstat.flush_below(&forest.leaves[next]);
        assert_eq!(forest.total(next, 0), 1);
    }
    assert_eq!(forest.total(0, 0), 1 + 2 * BATCH as i64);
}

impl Forest {
    /// Checks that each total is within its bound of what was counted, and exact after a flush.
    fn check(&self, counted: &[i64]) {
        for (group, &counted) in counted.iter().enumerate() {
            let (total, bound) = (self.total(group, 0), self.bound(group, 0));
            assert!(total.abs_diff(counted) <= bound, "{counted} not in {total} ± {bound}");
        }
    }

    /// Returns the capacity of its lists of groups and of its words.
    fn room(&self) -> (usize, u32) {
        let highest = GroupStats::new(&self.rstat, Some(&self.leaves[0])).expect("room").id();
        (self.rstat.flushes.lock().capacity(), highest)
    }
}

/// A program that counts and never reads takes no more room over time.
#[test]
fn groups_without_a_flush_take_no_more_room() {
    // Two groups in each round, and many times as many as the lists may hold.
    const ROUNDS: usize = if cfg!(miri) { 2 * BATCH } else { 40 * BATCH };
    for words in [1, 135] {
        let mut forest = Forest::new(words);
        let parent = forest.add_group(0);
        let mut counted = 0;
        for round in 0..ROUNDS {
            let above = &forest.leaves[parent];
            let inner = GroupStats::new(&forest.rstat, Some(above)).expect("room");
            let leaf = GroupStats::new(&forest.rstat, Some(&inner)).expect("room");
            // Sometimes more than a batch of updates, which is posted to ancestors at once.
            let by = if round % 7 == 0 { 3 * MASK.cast_signed() } else { 1 };
            leaf.add(words - 1, by, MASK);
            inner.add(0, 1, MASK);
            counted += if words == 1 { by + 1 } else { 1 };
            drop(leaf);
            drop(inner);
            assert!(forest.rstat.len() <= 4 + BATCH, "{}", forest.rstat.len());
            if round % 1000 == 0 {
                forest.check(&[counted; 2]);
            }
        }
        let (nodes, highest) = forest.room();
        assert!(nodes <= 8 * BATCH && highest <= 2 * BATCH as u32, "{nodes} {highest}");
        forest.check(&[counted; 2]);
        assert!(forest.total(0, 0) >= counted - 2 * (BATCH * 4) as i64 * MASK.cast_signed());
        forest.rstat.flush();
        assert_eq!((forest.total(0, 0), forest.bound(0, 0)), (counted, 0));
        assert_eq!(forest.rstat.len(), 2);
    }
}

/// The lists of a flush shrink with the tree.
#[test]
fn a_shrunk_tree_gives_its_lists_back() {
    // A row has 16,256 lines on 32-bit targets.
    const MANY: usize = if cfg!(miri) { 2 * BATCH } else { 60 * BATCH };
    let mut forest = Forest::new(8).grow(MANY);
    // Each on a line of its own, and posted to ancestors.
    let by = 2 * (MASK.cast_signed() + 1);
    forest.leaves.iter().for_each(|leaf| leaf.add(0, by, MASK));
    forest.rstat.flush();
    let large = forest.rstat.flushes.lock().capacity();
    assert!(large > MANY);
    while forest.leaves.len() > 1 {
        forest.leaves.pop();
    }
    assert!(forest.rstat.len() <= 1 + BATCH);
    forest.rstat.flush();
    let small = forest.rstat.flushes.lock().capacity();
    assert!(small <= 32 * BATCH || cfg!(miri), "{small} left of {large}");
    assert_eq!(forest.total(0, 0), by * MANY as i64);
}

/// While a flush is in progress, as for a snapshot, a thread that ends a group does not wait, and
/// it pays for at most a batch of the groups that waited.
#[test]
fn ends_under_the_lock_are_forgotten_later() {
    let mut forest = Forest::new(1);
    let parent = forest.add_group(0);
    let passed = Cell::new(0);
    let passing = |n: usize| {
        for _ in 0..n {
            let group = GroupStats::new(&forest.rstat, Some(&forest.leaves[parent])).expect("room");
            group.add(0, 1, MASK);
            passed.set(passed.get() + 1);
        }
    };
    let state = forest.rstat.flushes.lock();
    passing(6 * BATCH);
    drop(state);
    let mut before = forest.rstat.len();
    assert_eq!(before, 2 + 6 * BATCH);
    let mut forgot_some = false;
    while before > 2 + BATCH {
        passing(1);
        let now = forest.rstat.len();
        assert!(before + 1 - now <= BATCH_MAX, "{before} to {now} at once");
        forgot_some |= now < before;
        assert!(now < before || !forgot_some, "{before}, and none fewer");
        before = now;
    }
    forest.rstat.flush();
    assert_eq!(forest.rstat.len(), 2);
    assert_eq!([forest.total(0, 0), forest.total(parent, 0)], [passed.get(); 2]);
}

/// Groups that end before a flush knows them lose nothing, even if more wait than fit into a batch.
#[test]
fn groups_that_end_unknown_lose_nothing() {
    let forest = Forest::new(1);
    let end = |groups: usize| {
        for _ in 0..groups {
            let group = GroupStats::new(&forest.rstat, Some(&forest.leaves[0])).expect("room");
            group.add(0, 1, MASK);
        }
    };
    let state = forest.rstat.flushes.lock();
    let living: Vec<GroupStats> = (0..6 * BATCH)
        .map(|_| GroupStats::new(&forest.rstat, Some(&forest.leaves[0])).expect("room"))
        .collect();
    end(2 * BATCH);
    drop(state);
    end(8);
    assert!(forest.rstat.len() <= 1 + living.len() + BATCH);
    forest.rstat.flush();
    assert_eq!(forest.total(0, 0), 2 * BATCH as i64 + 8);
    drop(living);
    forest.rstat.flush();
    assert_eq!(forest.rstat.len(), 1);
    forest.check(&[2 * BATCH as i64 + 8]);
}

/// Dead children are forgotten before their parents, even if a flush of another part defers what it
/// took.
#[test]
fn dead_children_are_forgotten_before_parents() {
    let mut forest = Forest::new(1);
    let other = forest.add_group(0);
    for _ in 0..3 * BATCH {
        let above = GroupStats::new(&forest.rstat, Some(&forest.leaves[0])).expect("room");
        let below = GroupStats::new(&forest.rstat, Some(&above)).expect("room");
        below.add(0, 1, MASK);
        drop(below);
        // Takes the child's end, and leaves it to a later flush.
        forest.rstat.flush_below(&forest.leaves[other]);
        drop(above);
    }
    assert!(forest.rstat.len() <= 3 + BATCH);
    forest.rstat.flush();
    assert_eq!((forest.rstat.len(), forest.total(0, 0)), (2, 3 * BATCH as i64));
}
